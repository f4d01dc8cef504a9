"""``python -m bench.regret --out docs/benchmarks/regret``: what an exhaustive grid finds that the search did not.

Each example is searched with several budgets, which is the curve of found / best over time. With ``--pieces FOLDER``
every answer is stored, and the same command goes on after it: a search goes on where it was, and a contest after the
last replicate. ``--minutes`` ends a call after so long, with a table of what is finished, which says what is left. A
replicate takes 20 to 60 s on two quiet cores; of an example, the four searches take their budgets (30 min), and the
contest some 25 min. Two budgets (``--budgets 4 8``), and a part of the grid (``--limit 16``), take half of that.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.pieces import UNFINISHED, KeptAnswers, TimeIsUp, add_options, until_of
from bench.regret import report
from bench.regret.contest import Contest, FinalFailed, Terms
from bench.regret.grid import Choices, choices_of, make_grid, neighbours
from bench.report import command_line, write
from bench.studies import finished_study
from hotlap.api import local_executor
from hotlap.errors import HotlapError
from hotlap.experiment.options import Options
from hotlap.levers.api import all_levers
from hotlap.records import Progress, Study, Workload

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# A replicate ends when its shortest arm does: enough steps for the fastest plan.
SIZES: dict[str, tuple[str, ...]] = {
    "bert": ("--epochs", "20"),
    "resnet": ("--epochs", "100"),
    "gpt": ("--steps", "20000", "--eval-interval", "1000000"),
    "lstm": ("--epochs", "50"),
}
BUDGETS = (2.0, 4.0, 8.0, 16.0)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    usual = Terms()
    parser = argparse.ArgumentParser(
        prog="python -m bench.regret", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--examples", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--budgets", type=float, nargs="+", default=list(BUDGETS), help="minutes for each search")
    parser.add_argument("--limit", type=int, default=48, help="most plans of a grid to measure next to the found one")
    parser.add_argument("--climbs", type=int, default=usual.climbs, help="times to try all plans next to the best one")
    parser.add_argument("--heat-rounds", type=int, default=usual.heat_rounds)
    parser.add_argument("--semifinalists", type=int, default=usual.semifinalists)
    parser.add_argument("--semifinal-replicates", type=int, default=usual.semifinal_replicates)
    parser.add_argument("--final-replicates", type=int, default=usual.final_replicates)
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="rounds in a replicate of semifinal and final")
    parser.add_argument(
        "--turns",
        type=int,
        choices=(1, 2, 4),
        default=usual.block_turns,
        help="in which a block of the contest is taken",
    )
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser)
    options = parser.parse_args(arguments)
    if options.limit < 1 or options.final_replicates < 2 or options.semifinalists < 1:
        parser.error("--limit and --semifinalists must be at least 1, --final-replicates at least 2")
    options.budgets.sort()
    return options


def terms_of(options: argparse.Namespace) -> Terms:
    """How much is to be measured."""
    return Terms(
        heat_rounds=options.heat_rounds,
        climbs=options.climbs,
        semifinalists=options.semifinalists,
        semifinal_replicates=options.semifinal_replicates,
        final_replicates=options.final_replicates,
        rounds=options.rounds,
        block_turns=options.turns,
    )


def run_example(name: str, options: argparse.Namespace, directory: Path, until: float | None = None) -> report.Row:
    """Search, then hold the contest. A failing contest is a row too.

    Where the time is up, the row has what is finished. Raises :class:`HotlapError` for a failing search.
    """
    home = directory / name
    studies: list[Study] = []
    try:
        for minutes in options.budgets:
            study = searched(name, minutes, options.seed, home / f"search-{minutes:g}", until)
            _say(f"{name}: found {report.words(study.plan)} in {study.budget_seconds or 0:.0f} s")
            studies.append(study)
    except TimeIsUp:
        waiting = ", ".join(f"{it:g}" for it in options.budgets[len(studies) :])
        return report.unfinished(name, SIZES[name], studies, f"the searches of {waiting} min, and the contest")
    largest = studies[-1]
    choices = choices_of(largest, all_levers())
    grid = make_grid(choices, largest.plan, limit=options.limit, seed=options.seed)
    result, trouble = None, ""
    try:
        result = _contest(name, studies, choices, options, home, until).hold(grid.plans)
    except TimeIsUp:
        return report.unfinished(name, SIZES[name], studies, "the rest of the contest")
    except (FinalFailed, ValueError) as error:
        trouble = str(error)
    return report.Row(
        name=name,
        arguments=SIZES[name],
        studies=tuple(map(report.without_columns, studies)),
        choices=choices,
        grid=grid,
        result=result,
        trouble=trouble,
    )


def searched(name: str, minutes: float, seed: int, root: Path, until: float | None) -> Study:
    """The study of an example with that budget, which is begun below ``root``, or goes on there.

    Raises :class:`HotlapError`, and :class:`TimeIsUp` if it is not finished by then.
    """

    def progress(it: Progress) -> None:
        _say(f"{name}, {minutes:g} min: {it.stage} {it.text}")

    workload = Workload(
        kind="script",
        target=str(EXAMPLES / f"{name}.py"),
        arguments=SIZES[name],
        directory=str(EXAMPLES),
        python=sys.executable,
    )
    search = Options(budget_seconds=60 * minutes, seed=seed)
    return finished_study(root, workload, search, until=until, say=progress)


def _contest(
    name: str,
    studies: list[Study],
    choices: Choices,
    options: argparse.Namespace,
    home: Path,
    until: float | None,
) -> Contest:
    *others, largest = studies
    return Contest(
        executor=KeptAnswers(local_executor(home / "contest"), home / "answers" if options.pieces else None, until),
        workload=largest.workload,
        found=largest.plan,
        others=[it.plan for it in others],
        next_to=lambda plan: neighbours(choices, plan),
        terms=terms_of(options),
        progress=lambda text: _say(f"{name}: {text}"),
    )


def main(arguments: list[str] | None = None) -> int:
    """Search and measure example after example; the report is written after each, so that a cut loses nothing."""
    options = parse(arguments)
    until = until_of(options)
    rows: list[report.Row] = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="hotlap-regret-") as folder:
        home = options.pieces.resolve() if options.pieces else Path(folder)
        for name in options.examples:
            try:
                rows.append(run_example(name, options, home, until))
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
    left = [it.name for it in rows if it.left]
    if left:
        _say(f"Left, for the same command again: {', '.join(left)}")
        return UNFINISHED
    return 1 if failed or any(it.result is None for it in rows) else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
