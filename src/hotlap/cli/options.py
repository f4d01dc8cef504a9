"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import msgspec

from hotlap import api
from hotlap.cli import arguments
from hotlap.cli.answers import add_full_options
from hotlap.cli.arguments import Parser
from hotlap.cli.costs import add_cost_options
from hotlap.cli.goals import objective_from
from hotlap.cli.repeating import repeated_options
from hotlap.cli.workload import add_python_option, interpreter_from, workload_from
from hotlap.errors import UsageError
from hotlap.experiment.options import QUICK_SECONDS, BatchChoices, Options, check, with_quick_budget
from hotlap.levers.api import all_levers
from hotlap.records import NetworkMode, Workload


def script_parser(command: str, description: str, examples: str) -> Parser:
    """Make the parser of a command that takes a script or a module with its arguments."""
    usage = (
        f"hotlap {command} [options] SCRIPT [arguments of the script]\n"
        f"       hotlap {command} [options] -m MODULE [arguments of the module]"
    )
    made = Parser(f"hotlap {command}", description, examples, usage=usage)
    add_python_option(made)
    return made


def parsed(made: Parser, words: list[str]) -> tuple[argparse.Namespace, Workload]:
    """Parse the options and the script or module that follows.

    Raises :class:`UsageError`.
    """
    own, target = made.split(words)
    choices = parsed_options(made, own)
    return choices, workload_from(target, made.prog.removeprefix("hotlap "), interpreter_from(choices))


def parsed_options(made: Parser, words: list[str]) -> argparse.Namespace:
    """Parse the options, and note which of them a repetition of the command keeps (``repeated``).

    Raises :class:`UsageError`.
    """
    choices = made.parse_args(words)
    choices.repeated = repeated_options(made, words)
    return choices


def add_study_options(parser: Parser, *, rounds: bool = True) -> None:
    """Add the options for launches and output of a study without a plan."""
    add_isolation_options(parser)
    add_limit_options(parser, rounds=rounds)
    add_output_options(parser, plan=False)


def add_comparison_options(group: argparse._ActionsContainer) -> None:
    """Add the options for comparing two versions of a script."""
    group.add_argument(
        "--delta",
        type=arguments.share,
        default=0.05,
        metavar="SHARE",
        help="the smallest slowdown that counts (default: 5%%)",
    )
    add_budget_option(group)
    add_parity_option(group)
    add_seed_option(group, "trials")


def add_budget_option(group: argparse._ActionsContainer) -> None:
    """Add the budget of a command that verifies nothing."""
    group.add_argument(
        "--budget", type=arguments.seconds, metavar="TIME", help="stop after this long: 90s, 10m (default: no limit)"
    )


def add_parity_option(group: argparse._ActionsContainer, *also: str) -> None:
    """Add the number of compared steps; ``also`` are other names of the option."""
    group.add_argument(
        "--parity-steps",
        *also,
        type=partial(arguments.whole, 1),
        default=300,
        metavar="N",
        help="compare losses over this many steps (default: 300)",
    )


def add_quick_option(parser: Parser) -> None:
    """Add ``--quick``: answers without proof."""
    parser.add_argument(
        "--quick",
        action="store_true",
        help="prove nothing: show the time account, causes, bounds and one measurement of each lever (within "
        f"{QUICK_SECONDS / 60:g}m, or --budget)",
    )


def add_search_options(parser: Parser, *, budget: float | None = None, of_calls: bool = False) -> None:
    """Add the options for the budget and strictness of a search; ``of_calls``: of how a model is called."""
    default = "no limit" if budget is None else f"{budget / 60:g}m"
    group = parser.add_argument_group("the search")
    group.add_argument(
        "--budget",
        type=arguments.seconds,
        default=budget,
        metavar="TIME",
        help=f"stop after this long, with what is verified by then: 90s, 10m, 1h (default: {default})",
    )
    group.add_argument(
        "--delta",
        type=arguments.share,
        default=0.01,
        metavar="SHARE",
        help="the smallest gain worth having (default: 1%%)",
    )
    if not of_calls:
        add_parity_option(group, "--steps")
    verified = "that outputs keep the quality" if of_calls else "that training produces the same results"
    group.add_argument(
        "--accept-unverified",
        action="store_true",
        help=f"keep a faster lever even if it could not be verified {verified}",
    )
    add_seed_option(group, "trials")
    add_isolation_options(parser)
    add_limit_options(parser, of_calls=of_calls)


def add_seed_option(group: argparse._ActionsContainer, what: str = "launches") -> None:
    """Add the seed of all random numbers of a study."""
    group.add_argument(
        "--seed",
        type=partial(arguments.whole, 0),
        default=0,
        metavar="N",
        help=f"seed the {what} with this number (default: 0)",
    )


def add_limit_options(parser: Parser, *, rounds: bool = True, of_calls: bool = False) -> None:
    """Add rarely needed limits; ``rounds`` for commands that compare times, ``of_calls`` for those of a model."""
    group = parser.add_argument_group("limits, rarely needed")
    first, rest = ("call", "no call ends") if of_calls else ("step", "training makes no progress")
    for flag, default, what in (
        ("--startup-limit", 600.0, f"abort a trial that takes longer than this to its first {first}"),
        ("--block-limit", 300.0, f"abort a trial if {rest} for this long"),
    ):
        group.add_argument(
            flag,
            type=arguments.seconds,
            default=default,
            metavar="TIME",
            help=f"{what} (default: {default / 60:g}m)",
        )
    if rounds:
        group.add_argument(
            "--rounds",
            type=partial(arguments.whole, 2),
            metavar="N",
            help="timing rounds per replicate (default: chosen adaptively)",
        )


def add_isolation_options(parser: Parser) -> None:
    """Add the options for isolating trials."""
    group = parser.add_argument_group("isolation of trials")
    group.add_argument(
        "--network",
        choices=get_args(NetworkMode),
        default="open",
        metavar="MODE",
        help="`none`: trials have no network except loopback (default: open, because scripts may load data over it)",
    )
    group.add_argument(
        "--unprotected",
        action="store_true",
        help="continue without the fence where namespaces do not work: programs that the script starts, and "
        "libraries that write without Python, can then change your files",
    )


def add_lever_options(parser: Parser, *, of_calls: bool = False) -> None:
    """Add the options that choose levers; ``of_calls``: those of a model's calls, which load no samples."""
    group = parser.add_argument_group("the levers (`hotlap levers` lists them)")
    for flag, what in (
        ("--only", "try only these"),
        ("--skip", "do not try these"),
        ("--allow", "also try these, although they change what is learned"),
    ):
        group.add_argument(
            flag, type=arguments.names, action=arguments.AddNames, default=(), metavar="A,B", help=what
        )
    if of_calls:
        return
    group.add_argument(
        "--sample-cache",
        type=arguments.size,
        default=0,
        metavar="SIZE",
        help="let `cached-samples` keep samples that do not fit into memory in a file of at most this size, for each "
        "training process: 20GB (default: no file)",
    )


def add_batch_flag_option(group: argparse._ActionsContainer) -> None:
    """Add the script's own option for its batch size."""
    group.add_argument(
        "--batch-flag",
        default="",
        metavar="FLAG",
        help="change the batch size by this option of the script (default: in its DataLoader)",
    )


def add_output_options(parser: Parser, *, plan_out: str = "", plan: bool = True) -> None:
    """Add the options for output; ``plan`` if there is a plan to write."""
    group = parser.add_argument_group("output")
    if plan:
        default = f" (default: {plan_out})" if plan_out else ""
        group.add_argument(
            "--plan-out", type=Path, default=Path(plan_out) if plan_out else None, metavar="FILE",
            help=f"write the plan of the kept levers to this file{default}",
        )  # fmt: skip
    parser.set_defaults(plan_out=Path(plan_out) if plan_out else None)
    group.add_argument(
        "--study", type=Path, default=api.STUDIES, metavar="DIR", help="store studies in this folder (default: .hotlap)"
    )
    add_full_options(group)
    group.add_argument("--json", action="store_true", help="print one JSON document instead of the report")
    group.add_argument("--show-output", action="store_true", help="show what the script prints in each trial")
    add_cost_options(parser)
    parser.add_debug()


def launch_options(choices: argparse.Namespace) -> Options:
    """Read the options of launches; nothing is checked yet."""
    return Options(
        budget_seconds=getattr(choices, "budget", None),
        seed=choices.seed,
        rounds=getattr(choices, "rounds", None),
        startup_limit_seconds=choices.startup_limit,
        block_limit_seconds=choices.block_limit,
        show_output=choices.show_output,
        network=choices.network,
        unprotected=choices.unprotected,
        repeated=getattr(choices, "repeated", ()),
    )


def comparison_options_from(choices: argparse.Namespace) -> Options:
    """Read the options of a comparison of two versions; nothing is checked yet."""
    return msgspec.structs.replace(launch_options(choices), delta=choices.delta, parity_steps=choices.parity_steps)


def options_from(choices: argparse.Namespace) -> Options:
    """Read and check the search's options. Raises :class:`UsageError`."""
    options = msgspec.structs.replace(
        launch_options(choices),
        only=getattr(choices, "only", ()),
        skip=getattr(choices, "skip", ()),
        allow=getattr(choices, "allow", ()),
        accept_unverified=choices.accept_unverified,
        delta=choices.delta,
        parity_steps=choices.parity_steps,
        quick=getattr(choices, "quick", False),
        sample_cache_bytes=getattr(choices, "sample_cache", 0),
        batch=BatchChoices(flag=getattr(choices, "batch_flag", "")),
        objective=objective_from(choices),
    )
    options = with_quick_budget(options)
    check(options, all_levers())
    return options


def refuse_changed(parser: Parser, choices: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise :class:`UsageError` when one of these options is given together with ``--resume``."""
    for name in names:
        if getattr(choices, name) != parser.get_default(name):
            raise UsageError(
                f"{parser.flag_of(name)} cannot be given with --resume.",
                remedy="A study continues with its original options; omit it, or begin a new study.",
            )
