"""``hotlap doctor``: what this machine can and cannot do, what is in the way, and what to do about it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.answers import add_full_options, show_answer
from hotlap.cli.arguments import Parser, whole
from hotlap.errors import HotlapError, UsageError
from hotlap.machine.doctor import advice
from hotlap.records import CollectiveRates, Isolation, Machine, TrialCluster
from hotlap.render.cluster import cluster, remarks_on
from hotlap.render.doctor import Remark, doctor
from hotlap.render.doctor_summary import cluster_summary, doctor_summary
from hotlap.render.isolation import isolation_document
from hotlap.trial.collectives import measured_collectives
from hotlap.trial.owned_folder import owned_folder

_DESCRIPTION = """\
Looks at this machine and measures in a few seconds how fast it multiplies and copies; says what it
can and cannot do, what is in the way of training and measuring, and what to do about it. With
--processes it also measures what exchanging data between processes takes, by size."""

_MOST_PROCESSES = 64


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap doctor", _DESCRIPTION, usage="hotlap doctor [options]")
    add_full_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_argument(
        "--processes", type=_processes, metavar="N",
        help="also measure all-reduce, all-gather and reduce-scatter between N processes: by NCCL on CUDA devices, "
        "by gloo without one",
    )  # fmt: skip
    made.add_argument(
        "--cluster", action="store_true",
        help="compare the free nodes of a Ray cluster instead, and name the slow one",
    )  # fmt: skip
    made.add_argument(
        "--address",
        default="",
        metavar="ADDRESS",
        help="the Ray cluster (default: the one that this machine is part of)",
    )
    made.add_debug()
    return made


def _processes(word: str) -> int:
    found = whole(2, word)
    if found > _MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"{word} is more than {_MOST_PROCESSES}")
    return found


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    if choices.cluster:
        return _nodes(choices)
    machine = _machine(engine)
    collectives = _collectives(machine, choices.processes)
    remarks = [Remark(level=it.level, text=it.text, remedy=it.remedy) for it in advice(machine)]
    if choices.json:
        document = {
            "machine": machine,
            "isolation": isolation_document(machine),
            "advice": [(it.level, it.text, it.remedy) for it in remarks],
            "collectives": collectives,
        }
        screen.document("doctor", document)
    else:
        show_answer(
            choices,
            lambda: doctor_summary(machine, remarks, collectives),
            lambda: doctor(machine, remarks, collectives),
        )
    return 0


def _nodes(choices: argparse.Namespace) -> int:
    """Compare the nodes of a cluster. Raises :class:`hotlap.errors.HotlapError`."""
    with owned_folder(".hotlap-doctor-", Path.cwd()) as directory:
        nodes = api.machines_of_cluster(TrialCluster(kind="ray", address=choices.address), directory)
    if choices.json:
        remarks = list(remarks_on(nodes))
        screen.document("nodes", {"nodes": dict(nodes), "remarks": remarks})
    else:
        show_answer(choices, lambda: cluster_summary(nodes, choices.address), lambda: cluster(nodes))
    return 0


def _collectives(machine: Machine, processes: int | None) -> CollectiveRates | None:
    """Measure between so many processes, one per device where there are any.

    Raises :class:`UsageError` for more processes than devices.
    """
    if processes is None:
        return None
    devices = sum(it.kind in ("cuda", "rocm") for it in machine.accelerators)
    if devices and processes > devices:
        raise UsageError(
            f"NCCL needs a device for each of {processes} processes, and this machine has {devices}.",
            remedy=f"Give --processes {devices}." if devices > 1 else "Omit --processes.",
        )
    return measured_collectives(processes, "cuda" if devices else "cpu")


def _machine(engine: api.Engine) -> Machine:
    """Describe the machine as trials from this directory would find it."""
    here = Path.cwd()
    with owned_folder(".hotlap-doctor-", here if os.access(here, os.W_OK | os.X_OK) else None) as directory:
        try:
            return engine.executor(directory, Isolation()).machine()
        except HotlapError:
            return engine.executor(directory, Isolation(unprotected=True)).machine()
