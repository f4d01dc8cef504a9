"""``hotlap demo``: tune a small workload that ships with hotlap."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec

from hotlap import api
from hotlap.cli import options, screen, studies
from hotlap.cli.arguments import Parser
from hotlap.cli.workload import workload_from
from hotlap.errors import UsageError
from hotlap.experiment.options import Options
from hotlap.records import Progress, Study, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor

BUDGET_SECONDS = 240.0
LEVERS = ("cached-samples", "fused-optimizer", "channels-last")
"""What the demo tries unless it is told otherwise: enough to see the whole way from question to proof in minutes."""
WORKLOAD = Path(__file__).parents[1] / "demo" / "digits.py"

_DESCRIPTION = """\
Tunes a small script that ships with hotlap: a classifier of handwritten digits, written the way people
write such things. Shows in a few minutes what `hotlap tune` does. To keep it short only a few levers are
tried; name others with --only."""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap demo", _DESCRIPTION, usage="hotlap demo [options]")
    options.add_search_options(made, budget=BUDGET_SECONDS)
    options.add_lever_options(made)
    options.add_output_options(made, plan_out=".hotlap/demo.toml")
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    if importlib.util.find_spec("sklearn") is None:
        raise UsageError(
            "The demo needs scikit-learn for its data set.", remedy='Install it with `pip install "hotlap[demo]"`.'
        )
    workload = workload_from([str(WORKLOAD)], "demo")
    chosen = options.options_from(choices)
    if not (chosen.only or chosen.skip):
        chosen = msgspec.structs.replace(chosen, only=LEVERS)
    if not choices.quiet:
        screen.note(f"tuning {WORKLOAD}, as `hotlap tune` would tune a script of yours")
    search = engine.search if choices.budget != BUDGET_SECONDS else _patient(engine.search)
    return studies.new_study(choices, workload, chosen, choices.study, engine, search)


def _patient(search: api.Search) -> api.Search:
    """A search that goes on with a larger budget where the demo's default, made for an idle two-core machine, allows
    no proof."""

    def carried_out(
        workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: api.OnProgress
    ) -> Study:
        found = search(workload, options, journal, executor, on_progress)
        if found.status != "quick-look" or found.needed_seconds is None:
            return found
        longer = msgspec.structs.replace(options, budget_seconds=found.needed_seconds)
        text = f"This machine needs more time than the default of the demo: using {found.needed_seconds:.0f} s"
        on_progress(Progress(stage="baseline", text=text, budget_seconds=found.needed_seconds))
        return search(workload, longer, journal, executor, on_progress)

    return carried_out
