"""``hotlap demo``: the main job on a small workload that ships with the package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec

from hotlap import api
from hotlap.cli import options, screen, studies
from hotlap.cli.arguments import Parser
from hotlap.cli.workload import workload_from
from hotlap.errors import BudgetError, UsageError

BUDGET_SECONDS = 270.0
LEVERS = ("loader",)
"""What the demo tries unless it is told otherwise: enough to see the whole way from question to proof in minutes."""
WORKLOAD = Path(__file__).parents[1] / "demo" / "digits.py"

_DESCRIPTION = """\
Tunes a small script that ships with hotlap: a classifier of handwritten digits, written the way people
write such things. Shows in a few minutes what `hotlap tune` does. To keep it short only the loader lever is
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
    try:
        return studies.new_study(choices, workload, chosen, choices.study, engine, engine.search)
    except BudgetError as error:
        if choices.budget != BUDGET_SECONDS:
            raise
        # The demo's own budget fits an idle two-core machine; nobody asked for it to be kept on a slower one.
        screen.note(f"this machine needs longer than the demo was made for: giving it {error.needed_seconds:.0f} s")
        longer = msgspec.structs.replace(chosen, budget_seconds=error.needed_seconds)
        return studies.new_study(choices, workload, longer, choices.study, engine, engine.search)
