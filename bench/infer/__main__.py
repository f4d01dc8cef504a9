"""Compare what `hotlap infer` recommends with each engine used by hand, as its own documentation shows.

For each model and batch size the search runs first. Then each engine by hand takes turns with the recommended form, in
fresh launches, and its outputs are compared with those of the model in float32. One is admissible if these keep the
level; where weights were drawn at random, by cosine alone, which claims speed and no quality. The recommended form is
missed by as much as the fastest admissible engine is faster.

With ``--pieces`` each finished search and each finished comparison with an engine is stored in that folder, and the
same command goes on after them.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from bench.pieces import piece
from bench.report import command_line, table, write
from hotlap.api import local_executor
from hotlap.experiment.comparing import compare_replicates
from hotlap.experiment.options import Options
from hotlap.measure.quality import compared_outputs, judge_quality, outputs_of
from hotlap.procedures.infer import infer
from hotlap.records import (
    Assignment,
    CaptureOutputs,
    Estimate,
    Isolation,
    Kept,
    LaunchRequest,
    Plan,
    Run,
    Stopped,
    Study,
    TurnRequest,
    Workload,
)
from hotlap.trial.executor import Executor
from hotlap.wording import ending_text

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
MODELS = ("minilm", "bert", "resnet", "lstm", "cnn")
RANDOM = ("bert", "resnet")
"""Models whose weights are drawn at random: their speed alone means something."""
BATCHES = (1, 8)
REPLICATES = 3
ROUNDS = 8
CALIBRATED = 8
INPUTS = 16
ALLOWED = 0.03
"""By which share the recommended form may be slower than the fastest admissible engine."""


class ByHand(msgspec.Struct, kw_only=True):
    """One engine by hand. ``against_chosen`` above 1 means that it is faster than the recommended form."""

    engine: str
    quality: float | None = None
    admissible: bool = False
    against_chosen: Estimate | None = None
    obstacle: str = ""


class Searched(msgspec.Struct, kw_only=True):
    """What `hotlap infer` recommends for one model with one batch size."""

    plan: Plan
    level: float
    speedup: Estimate | None = None
    quality: float | None = None
    claims_lost_quality: bool = False


class Row(msgspec.Struct, kw_only=True):
    """One model with one batch size; ``speedup`` is that of the recommended form over the unmodified model."""

    model: str
    batch: int
    chosen: str
    speedup: Estimate | None
    quality: float | None
    claims_lost_quality: bool
    engines: tuple[ByHand, ...]

    @property
    def best(self) -> ByHand | None:
        """The fastest admissible engine by hand."""
        known = [(it.against_chosen.value, it) for it in self.engines if it.admissible and it.against_chosen]
        return max(known, key=lambda it: it[0])[1] if known else None

    @property
    def missed(self) -> float:
        """By which share of its time the recommended form is slower than the fastest admissible engine."""
        best = self.best
        return max(0.0, best.against_chosen.value - 1) if best is not None and best.against_chosen else 0.0


def main(words: list[str]) -> None:
    """Search and compare each model, and write the table."""
    from bench.infer.engines import NAMES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS), help="names, with commas")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)), help="batch sizes, with commas")
    parser.add_argument("--engines", default=",".join(NAMES), help="engines by hand, with commas")
    parser.add_argument("--only", default="", help="levers that the search may try, with commas (default: all)")
    parser.add_argument("--budget", type=float, default=300, help="seconds for each search (default: 300)")
    parser.add_argument("--pieces", type=Path, help="the folder of finished pieces (default: none is stored)")
    parser.add_argument("--replicates", type=int, default=REPLICATES, help=f"launches (default: {REPLICATES})")
    choices = parser.parse_args(words)
    options = Options(budget_seconds=choices.budget, only=tuple(filter(None, choices.only.split(","))))
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), choices.models.split(","))
        rows = []
        for model, batch in (
            (model, int(it)) for model in choices.models.split(",") for it in choices.batches.split(",")
        ):
            bench = Bench(Path(folder), model, batch, choices.replicates, choices.pieces)
            rows.append(bench.row(options, choices.engines.split(",")))
            sys.stderr.write(f"{cells(rows[-1])}\n")
    write(
        choices.out,
        title="Inference: the recommended form against engines used by hand",
        command=command_line("bench.infer"),
        text=text_of(rows),
        data=msgspec.to_builtins(rows),
    )


def prepare(folder: Path, models: Sequence[str]) -> None:
    """Copy the user's modules, and train the small networks on scikit-learn's digits."""
    shutil.copy(ROOT / "tests" / "inference" / "real_models.py", folder)
    shutil.copy(HERE / "workloads.py", folder)
    sys.path.insert(0, os.fspath(folder))
    try:
        real_models = importlib.import_module("real_models")
    finally:
        sys.path.remove(os.fspath(folder))
    for kind in set(models) & {"cnn", "lstm"}:
        real_models.train(kind)


class Bench:
    """One model with one batch size, in a folder with the user's modules."""

    def __init__(self, folder: Path, model: str, batch: int, replicates: int, pieces: Path | None = None) -> None:
        self._folder = folder
        self._pieces = pieces / f"{model}-{batch}" if pieces is not None else None
        self._model, self._batch = model, batch
        self._replicates = replicates
        # One more than a folder of the runs: the executor's study.
        self._executor: Executor = local_executor(folder / f"{model}-{batch}", Isolation())

    def row(self, options: Options, engines: Sequence[str]) -> Row:
        """Search, then compare with each engine."""
        options = msgspec.structs.replace(options, accept_unverified=self._model in RANDOM)
        found = piece(self._pieces, "search", Searched, partial(self._searched, options))
        return Row(
            model=self._model,
            batch=self._batch,
            chosen=", ".join(it.lever for it in found.plan.settings) or "unmodified",
            speedup=found.speedup,
            quality=found.quality,
            claims_lost_quality=found.claims_lost_quality,
            engines=tuple(
                piece(self._pieces, it, ByHand, partial(self._by_hand, it, found.plan, found.level)) for it in engines
            ),
        )

    def _searched(self, options: Options) -> Searched:
        study = infer(self._workload(""), options, self._executor)
        comparison = _comparison_of_plan(study)
        quality = comparison.quality if comparison is not None else None
        return Searched(
            plan=study.plan,
            level=options.quality,
            speedup=comparison.speed.speedup if comparison is not None else None,
            quality=quality.likeness if quality is not None else None,
            claims_lost_quality=quality is not None and quality.verdict == "lost",
        )

    @cached_property
    def _reference(self) -> Mapping[str, Any] | str:
        """The outputs of the model in float32."""
        return self._outputs("", Plan(), (CaptureOutputs(in_float32=True),))

    def _workload(self, engine: str) -> Workload:
        name = f"{self._model}_{self._batch}"
        return Workload(
            kind="inference",
            target=f"workloads:{name}" + (f"__{engine}" if engine else ""),
            arguments=("--inputs", f"workloads:{name}_inputs"),
            directory=os.fspath(self._folder),
            python=sys.executable,
        )

    def _by_hand(self, engine: str, plan: Plan, level: float) -> ByHand:
        reference = self._reference
        outputs = self._outputs(engine, Plan(), (CaptureOutputs(),))
        if isinstance(reference, str) or isinstance(outputs, str):
            return ByHand(engine=engine, obstacle=outputs if isinstance(outputs, str) else str(reference))
        first = CALIBRATED if engine.endswith("int8") else 0
        found = compared_outputs(reference, _renamed(outputs, reference), first=first)
        quality = judge_quality(found, level=level, inputs=INPUTS - first, random_weights=0.0, proof="rounding")
        arms = self._arm("", plan), self._arm("", plan), self._arm(engine, Plan())
        taken = []
        for number in range(self._replicates):
            request = TurnRequest(arms=arms, rounds=ROUNDS, order_seed=number)
            taken.append(self._executor.submit(request, self._executor.slots()[0]).result())
        if not all(it.rounds[0] for it in taken):
            return ByHand(engine=engine, quality=quality.likeness, obstacle="It did not run to the end of its turns.")
        compared = compare_replicates(taken, delta=0.01, confidence=0.95)
        return ByHand(
            engine=engine,
            quality=quality.likeness,
            admissible=quality.verified,
            against_chosen=compared.speedup,
        )

    def _arm(self, engine: str, plan: Plan) -> Assignment:
        return Assignment(workload=self._workload(engine), step_source="call", plan=plan)

    def _outputs(self, engine: str, plan: Plan, instruments: tuple[CaptureOutputs, ...]) -> Mapping[str, Any] | str:
        """What is returned for each input, or why nothing is."""
        assignment = msgspec.structs.replace(self._arm(engine, plan), instruments=instruments)
        request = LaunchRequest(assignment=assignment, steps=INPUTS)
        run: Run = self._executor.submit(request, self._executor.slots()[0]).result()
        return outputs_of(run.outputs_path) if isinstance(run.ending, Stopped) else ending_text(run.ending)


def _comparison_of_plan(study: Study) -> Any:
    from hotlap.gain import comparison_of_plan

    found = comparison_of_plan(study)
    if found is not None:
        return found
    kept = [it.verdict.comparison for it in study.outcomes if isinstance(it.verdict, Kept)]
    return kept[-1] if kept else None


def _renamed(outputs: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs with the reference's names: engines return tensors by number."""
    names: dict[str, list[str]] = {}
    for key in reference:
        number, slash, _ = key.partition("/")
        if slash and number.isdecimal():
            names.setdefault(number, []).append(key)
    found: dict[str, Any] = {}
    for number, wanted in names.items():
        own = [it for key, it in outputs.items() if key.startswith(f"{number}/")]
        found |= dict(zip(wanted, own, strict=False))
    return found


def text_of(rows: Sequence[Row]) -> str:
    """The table, and what its columns are."""
    missed = [it for it in rows if it.missed > ALLOWED]
    false = [it for it in rows if it.claims_lost_quality]
    summary = (
        f"Slower than the fastest admissible engine by more than {100 * ALLOWED:.0f} %: {len(missed)} of {len(rows)}. "
        f"Recommendations whose outputs are below the level: {len(false)}."
    )
    heads = ("model", "batch", "recommended", "over unmodified", "quality", "fastest admissible by hand", "missed by")
    lines = [summary, "", table(heads, [cells(it) for it in rows])]
    for it in rows:
        lines += [
            "",
            f"## {it.model}, batch {it.batch}",
            "",
            table(_ENGINE_HEADS, [_engine_cells(e) for e in it.engines]),
        ]
    return "\n".join(lines)


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table."""
    best = row.best
    return (
        row.model,
        str(row.batch),
        row.chosen,
        _interval(row.speedup),
        "" if row.quality is None or row.model in RANDOM else f"{row.quality:.4g}",
        best.engine if best is not None else "",
        f"{100 * row.missed:.1f} %" if best is not None else "",
    )


_ENGINE_HEADS = ("by hand", "against the recommended form", "quality", "admissible", "remark")


def _engine_cells(it: ByHand) -> tuple[str, ...]:
    quality = "" if it.quality is None else f"{it.quality:.4g}"
    return it.engine, _interval(it.against_chosen), quality, "yes" if it.admissible else "no", it.obstacle[:200]


def _interval(of: Estimate | None) -> str:
    return "" if of is None or math.isnan(of.value) else f"{of.value:.2f}x ({of.low:.2f} to {of.high:.2f})"


if __name__ == "__main__":
    main(sys.argv[1:])
