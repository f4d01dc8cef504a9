"""Compare what `hotlap infer` recommends with each engine used by hand, as its own documentation shows.

For each model and batch size the search runs first. Then each engine by hand gives its outputs for the same inputs,
which are compared with those of the model in float32: one is admissible if they keep the level, by the judgement that
the search uses too. Of models whose weights are drawn at random that claims speed, and no quality. The admissible
engines that may be the fastest take turns with the recommended form, in fresh launches. The recommended form is missed
by as much as the fastest admissible engine is faster. Its outputs are also compared for inputs that the search did not
have.

Each finished search, launch and replicate is stored in the folder ``--pieces``, and the same command goes on after
them, within a search too. A piece takes a few minutes; all take about 80 quiet ones (an estimate). The table is written
after each model and batch size, and says which are left.
"""

from __future__ import annotations

import argparse
import math
import os
import runpy
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.infer.case import ALLOWED, FAR, RANDOM, Case
from bench.infer.engines import ENGINES
from bench.infer.records import ByHand, Row
from bench.pieces import UNFINISHED, TimeIsUp, add_options, until_of
from bench.report import command_line, table, write
from hotlap.errors import HotlapError
from hotlap.experiment.options import Options
from hotlap.records import Estimate

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
MODELS = tuple(ENGINES)
BATCHES = (1, 8)
REPLICATES = 3
_NOT_BY_HAND = ("batched-calls", "cpu-threads")
"""Levers that change what engines by hand have alike: the batch size and the number of threads."""
SECONDS = {"cnn": 270, "lstm": 270, "minilm": 360, "bert": 360, "resnet": 360}
"""The budget of a search for single samples."""
FOR_LARGER = 90
"""What larger batches add to it where a call of the unmodified model takes a tenth of a second or more."""
ROUNDS = 5
"""Of each replicate of a search: launches differ more than rounds do."""


def main(words: list[str]) -> int:
    """Search and compare each model, and write the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    add_options(parser)
    parser.add_argument("--models", default=",".join(MODELS), help="names, with commas")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)), help="batch sizes, with commas")
    parser.add_argument("--engines", default="", help="engines by hand, with commas (default: those meant for a model)")
    parser.add_argument("--only", default="", help="levers that the search may try, with commas (default: all)")
    parser.add_argument("--budget", type=float, help="seconds for each search (default: 270 to 450, by model)")
    parser.add_argument("--replicates", type=int, default=REPLICATES, help=f"launches (default: {REPLICATES})")
    choices = parser.parse_args(words)
    cases = [(model, int(it)) for model in _listed(choices.models) for it in _listed(choices.batches)]
    pieces = (choices.pieces or Path("build/infer")).absolute()
    user = prepare(pieces / "user", [model for model, _ in cases])
    rows: dict[tuple[str, int], Row] = {}
    until = until_of(choices)
    for model, batch in cases:
        options = options_for(model, batch, choices.budget, _listed(choices.only))
        case = Case(user, model, batch, choices.replicates, pieces, until)
        try:
            row = case.row(options, _listed(choices.engines) or ENGINES[model], rows.get((model, 1)))
        except TimeIsUp:
            sys.stderr.write(f"The time was over before {model}, batch {batch}: the same command goes on.\n")
            return UNFINISHED
        except HotlapError as error:
            sys.stderr.write(f"{model}, batch {batch}: {error}\n")
            continue
        rows[model, batch] = row
        sys.stderr.write(f"{cells(row)}\n")
        left = [f"{it} {size}" for it, size in cases if (it, size) not in rows]
        write(
            choices.out,
            title="Inference: the recommended form against engines used by hand",
            command=command_line("bench.infer"),
            text=text_of(list(rows.values()), left),
            data=msgspec.to_builtins(list(rows.values())),
        )
    return 0


def options_for(model: str, batch: int, budget: float | None, only: Sequence[str] = ()) -> Options:
    """The search's options."""
    is_slow = batch > 1 and model not in ("cnn", "lstm")
    seconds = SECONDS[model] + (FOR_LARGER if is_slow else 0.0) if budget is None else budget
    return Options(budget_seconds=seconds, only=tuple(only), skip=_NOT_BY_HAND, rounds=ROUNDS)


def prepare(user: Path, models: Sequence[str]) -> Path:
    """Copy the user's modules, and train the small networks on scikit-learn's digits where that was not done before."""
    user.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "tests" / "inference" / "real_models.py", user)
    shutil.copy(HERE / "workloads.py", user)
    missing = [it for it in ("cnn", "lstm") if it in models and not (user / "trained" / f"{it}.pt").exists()]
    if missing:
        real_models = runpy.run_path(os.fspath(user / "real_models.py"))
        for kind in missing:
            real_models["train"](kind)
    return user


def text_of(rows: Sequence[Row], left: Sequence[str] = ()) -> str:
    """The table, and what its columns are."""
    heads = ("model", "batch", "recommended", "over unmodified", "quality", "fastest admissible by hand", "missed by")
    lines = [_summary(rows), ""]
    lines += [f"Not measured yet: {', '.join(left)}.", ""] if left else []
    lines.append(table(heads, [cells(it) for it in rows]))
    lines += ["", _LEGEND]
    for it in rows:
        lines += ["", f"## {it.model}, batch {it.batch}", "", *_remarks(it), ""]
        lines.append(table(_ENGINE_HEADS, [_engine_cells(e) for e in it.engines]))
    return "\n".join(lines)


_LEGEND = (
    "Quality is the smallest cosine or agreement of outputs for inputs that the search did not have; of weights drawn "
    "at random (bert, resnet) it claims nothing and is left out. Intervals are at 95 %, over launches. An engine that "
    "is not admissible, or whose calls took over 1.5 times as long as the fastest admissible one's in the launch that "
    "compared outputs, was not timed in turns: the milliseconds of that launch are shown, and support no claim. Where "
    "three replicates leave open whether an engine is faster than allowed, three more are taken. "
    f"Larger batches leave out what took more than {FAR:g} times as long as the fastest one for single samples. "
    "bert has 4 of its 12 layers. Two threads everywhere; the searches may not change that, nor the batch size."
)


def _summary(rows: Sequence[Row]) -> str:
    missed = [it for it in rows if it.missed > ALLOWED]
    surely = [it for it in missed if it.best is not None and it.best.against_chosen and _low(it) > 1 + ALLOWED]
    below = [it for it in rows if it.others is not None and it.others.below and it.model not in RANDOM]
    beyond = [it for it in below if it.others is not None and it.others.beyond_chance]
    return (
        f"Slower than the fastest admissible engine by more than {100 * ALLOWED:.0f} %: {len(missed)} of {len(rows)} "
        f"({len(surely)} with the whole interval). Recommendations whose outputs are below the level on other inputs: "
        f"{len(below)} ({len(beyond)} beyond chance). Searches without a recommendation: "
        f"{sum(it.chosen == 'unmodified' for it in rows)}."
    )


def _low(row: Row) -> float:
    best = row.best
    return best.against_chosen.low if best is not None and best.against_chosen is not None else 0.0


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table."""
    best, others = row.best, row.others
    quality = others.quality if others is not None and row.model not in RANDOM else None
    return (
        row.model,
        str(row.batch),
        row.chosen,
        _interval(row.speedup),
        "" if quality is None else f"{quality:.4g}",
        best.engine if best is not None else "",
        f"{100 * row.missed:.1f} %" if best is not None else "",
    )


def _remarks(row: Row) -> Iterator[str]:
    yield f"The search took {row.spent_seconds / 60:.0f} min ({row.status})."
    if row.copies is not None:
        yield f"Two copies of the recommended form: {_interval(row.copies)}."
    if row.others is not None and row.others.text:
        yield f"On other inputs: {row.others.text}"
    yield from row.remarks


_ENGINE_HEADS = ("by hand", "against the recommended form", "ms per call", "quality", "admissible", "remark")


def _engine_cells(it: ByHand) -> tuple[str, ...]:
    return (
        it.engine,
        _interval(it.against_chosen),
        "" if it.call_seconds is None else f"{1e3 * it.call_seconds:.3g}",
        "" if it.quality is None else f"{it.quality:.4g}",
        "yes" if it.admissible else "no",
        it.obstacle[:200].replace("\n", " ").replace("|", "/"),
    )


def _interval(of: Estimate | None) -> str:
    return "" if of is None or math.isnan(of.value) else f"{of.value:.2f}x ({of.low:.2f} to {of.high:.2f})"


def _listed(words: str) -> list[str]:
    return [it for it in words.split(",") if it]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
