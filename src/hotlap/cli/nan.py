"""``hotlap nan``: which operation made the first number that is NaN or infinite, and on which line."""

from __future__ import annotations

from functools import partial

from hotlap import api
from hotlap.cli import arguments, screen
from hotlap.cli.answers import add_full_options, show_answer
from hotlap.cli.arguments import Parser
from hotlap.cli.options import add_isolation_options, parsed
from hotlap.cli.workload import add_python_option
from hotlap.procedures.numbers_hunt import HuntOptions, hunt
from hotlap.render.nan import nan_report
from hotlap.render.nan_summary import nan_summary
from hotlap.trial.owned_folder import owned_folder

FOUND = 1

_DESCRIPTION = """\
Runs the script until a loss, a gradient that the optimizer uses, or a weight is NaN or infinite, then
runs the same steps again from the same seed with every operation checked: names the operation, the
line, the layer, and what its tensors held."""

_EXAMPLES = """\
examples:
  hotlap nan train.py --epochs 1
  hotlap nan --steps 500 -m package.train

exit code: 0 when all was finite, 1 when a number was not, the script's own code if it failed for
another reason, 2 for bad usage."""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap nan", _DESCRIPTION, _EXAMPLES, usage="hotlap nan [options] SCRIPT [arguments of the script]")
    add_python_option(made)
    defaults = HuntOptions()
    made.add_argument(
        "--steps",
        type=partial(arguments.whole, 1),
        metavar="N",
        help="check this many steps (default: until the script ends)",
    )
    made.add_argument(
        "--seconds",
        type=arguments.seconds,
        default=defaults.seconds,
        metavar="TIME",
        help=f"stop after this long: 90s, 10m, 1h (default: {defaults.seconds / 60:g}m)",
    )
    made.add_argument(
        "--seed",
        type=partial(arguments.whole, 0),
        default=0,
        metavar="N",
        help="seed the runs with this number (default: 0)",
    )
    for flag, default, what in (
        (
            "--startup-limit",
            defaults.startup_limit_seconds,
            "abort a run that takes longer than this to its first step",
        ),
        ("--block-limit", defaults.block_limit_seconds, "abort a run if training makes no progress for this long"),
    ):
        made.add_argument(
            flag, type=arguments.seconds, default=default, metavar="TIME", help=f"{what} (default: {default / 60:g}m)"
        )
    add_isolation_options(made)
    add_full_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_argument("--show-output", action="store_true", help="show what the script prints")
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices, workload = parsed(parser(), words)
    options = HuntOptions(
        steps=choices.steps,
        seconds=choices.seconds,
        seed=choices.seed,
        startup_limit_seconds=choices.startup_limit,
        block_limit_seconds=choices.block_limit,
        show_output=choices.show_output,
        network=choices.network,
        unprotected=choices.unprotected,
    )
    with owned_folder("hotlap-nan-") as directory:
        report = _say_nothing if choices.quiet else screen.note
        found = hunt(workload, options, engine.executor(directory, options.isolation), report)
    if choices.json:
        screen.document("nan", found)
    else:
        show_answer(choices, lambda: nan_summary(found), lambda: nan_report(found))
    return FOUND if found.noticed is not None else 0


def _say_nothing(sentence: str) -> None:
    """Ignore progress."""
