"""``python -m bench.regret --out docs/benchmarks/regret``: what an exhaustive grid finds that the search did not."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import msgspec

import hotlap
from bench.regret import report
from bench.regret.contest import Contest, FinalFailed, Terms
from bench.regret.grid import choices_of, make_grid
from bench.report import command_line, write
from hotlap.api import local_executor
from hotlap.errors import HotlapError
from hotlap.levers.api import all_levers
from hotlap.records import Study

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# A replicate ends when its shortest arm does: enough steps for the fastest plan.
SIZES: dict[str, tuple[str, ...]] = {
    "bert": ("--epochs", "20"),
    "resnet": ("--epochs", "100"),
    "gpt": ("--steps", "20000", "--eval-interval", "1000000"),
    "lstm": ("--epochs", "50"),
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    usual = Terms()
    parser = argparse.ArgumentParser(prog="python -m bench.regret", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--examples", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--limit", type=int, default=48, help="most plans of a grid to measure next to the found one")
    parser.add_argument("--budget", type=float, default=900.0, help="seconds for each search; 0 for no limit")
    parser.add_argument("--heat-rounds", type=int, default=usual.heat_rounds)
    parser.add_argument("--semifinalists", type=int, default=usual.semifinalists)
    parser.add_argument("--semifinal-replicates", type=int, default=usual.semifinal_replicates)
    parser.add_argument("--final-replicates", type=int, default=usual.final_replicates)
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="rounds in a replicate of semifinal and final")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.limit < 1 or options.final_replicates < 2 or options.semifinalists < 1:
        parser.error("--limit and --semifinalists must be at least 1, --final-replicates at least 2")
    return options


def terms_of(options: argparse.Namespace) -> Terms:
    """How much is to be measured."""
    return Terms(
        heat_rounds=options.heat_rounds,
        semifinalists=options.semifinalists,
        semifinal_replicates=options.semifinal_replicates,
        final_replicates=options.final_replicates,
        rounds=options.rounds,
    )


def run_example(name: str, options: argparse.Namespace, directory: Path) -> report.Row:
    """Search, then hold the contest. A failing contest is a row too. Raises :class:`HotlapError` for a failing
    search."""
    script = EXAMPLES / f"{name}.py"
    study = hotlap.tune(
        script,
        arguments=SIZES[name],
        budget_seconds=options.budget or None,
        seed=options.seed,
        directory=directory / "studies",
        on_progress=lambda it: _say(f"{name}: {it.stage} {it.text}"),
    )
    _say(f"{name}: found {report.words(study.plan)}")
    began = time.monotonic()
    choices = choices_of(study, all_levers())
    grid = make_grid(choices, study.plan, limit=options.limit, seed=options.seed)
    result, trouble = None, ""
    try:
        result = _contest(name, study, options, directory).hold(grid.plans)
    except (FinalFailed, ValueError) as error:
        trouble = str(error)
    return report.Row(
        name=name,
        arguments=SIZES[name],
        study=_without_columns(study),
        choices=choices,
        grid=grid,
        result=result,
        trouble=trouble,
        seconds=time.monotonic() - began,
    )


def _contest(name: str, study: Study, options: argparse.Namespace, directory: Path) -> Contest:
    return Contest(
        executor=local_executor(directory / "contest" / name),
        workload=study.workload,
        found=study.plan,
        terms=terms_of(options),
        progress=lambda text: _say(f"{name}: {text}"),
    )


def _without_columns(study: Study) -> Study:
    """The study without its per-step columns, which are not needed here."""
    return msgspec.structs.replace(study, baseline=None)


def main(arguments: list[str] | None = None) -> int:
    """Search and measure example after example; the report is written after each, so that a cut loses nothing."""
    options = parse(arguments)
    rows: list[report.Row] = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="hotlap-regret-") as folder:
        for name in options.examples:
            try:
                rows.append(run_example(name, options, Path(folder)))
            except HotlapError as error:
                _say(f"{name}: {error}")
                failed = True
                continue
            write(
                options.out,
                title="Regret: the plan found against a grid",
                command=command_line("bench.regret"),
                text=report.markdown(rows, terms_of(options)),
                data=report.data(rows),
            )
    return 1 if failed or any(it.result is None for it in rows) else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
