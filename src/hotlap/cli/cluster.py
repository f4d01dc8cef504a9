"""Options for trials on a cluster."""

from __future__ import annotations

import argparse
from functools import partial

from hotlap.cli import arguments
from hotlap.cli.arguments import Parser
from hotlap.errors import UsageError
from hotlap.records import TrialCluster

OF_THE_STUDY = ("executor", "address", "nodes", "slurm")


def add_cluster_options(parser: Parser) -> None:
    """Add the options for where trials run."""
    group = parser.add_argument_group("where trials run")
    group.add_argument(
        "--executor", choices=("local", "ray", "slurm"), default="local",
        help="run trials on this machine, on the free nodes of a Ray cluster, or as jobs of Slurm (default: local); "
        "all arms of a replicate stay on one node, and all nodes are of one kind",
    )  # fmt: skip
    group.add_argument(
        "--address",
        default="",
        metavar="ADDRESS",
        help="the Ray cluster (default: the one that this machine is part of); for Slurm, local starts the jobs here",
    )
    group.add_argument(
        "--nodes", type=partial(arguments.whole, 1), default=0, metavar="N",
        help="use at most this many nodes, or jobs at the same time (default: all that are free; one job of Slurm)",
    )  # fmt: skip
    group.add_argument(
        "--slurm", type=_setting, action="append", default=None, metavar="NAME=VALUE",
        help="an option of the jobs by its name in sbatch, such as partition=gpu; may be repeated",
    )  # fmt: skip


def cluster_from(choices: argparse.Namespace) -> TrialCluster | None:
    """Read these options; None for this machine. Raises :class:`UsageError` for those of another executor."""
    kind, settings = choices.executor, tuple(choices.slurm or ())
    if kind == "local":
        for flag, given in (("--address", choices.address), ("--nodes", choices.nodes), ("--slurm", settings)):
            if given:
                raise UsageError(
                    f"{flag} is for trials on a cluster.", remedy="Add --executor ray or --executor slurm."
                )
        return None
    if settings and kind == "ray":
        raise UsageError("--slurm is for jobs of Slurm.", remedy="Omit it, or give --executor slurm.")
    return TrialCluster(kind=kind, address=choices.address, nodes=choices.nodes, settings=settings)


def _setting(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=VALUE, such as partition=gpu")
    return name, value
