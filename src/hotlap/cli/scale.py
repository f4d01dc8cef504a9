"""``hotlap scale``: predict the step on more devices, from the step measured here."""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from hotlap import api
from hotlap.cli import arguments, options, screen, studies
from hotlap.cli.answers import show_answer
from hotlap.cli.arguments import Parser
from hotlap.cli.costs import price
from hotlap.cli.resuming import add_resume_option, resumed
from hotlap.errors import UsageError
from hotlap.experiment.options import ScaleChoices, check
from hotlap.levers.api import all_levers
from hotlap.procedures.scale import predicted_from
from hotlap.records import Study
from hotlap.render.json import study_json
from hotlap.render.summary import summary
from hotlap.render.terminal import report
from hotlap.scaling.published import devices
from hotlap.study import SCALES

_DESCRIPTION = """\
Measures the script in one process: its step, when backward finishes which gradient, its memory, and,
unless links are given, collectives between processes of this machine. Then simulates steps of more
processes under DDP, ZeRO-1 and FSDP2, each process with the script's own batch, and shows the scaling
curve, what limits it, and from how many devices on which strategy is the best."""

_EXAMPLES = """\
examples:
  hotlap scale train.py                     as many processes as this machine has devices or cores
  hotlap scale --nodes 64 --gpus-per-node 8 --device h100 --link 400Gb train.py
  hotlap scale --from .hotlap/scale/20260131-142501-337 --nodes 8 --link 50GB/s
                                            another cluster, from the step measured before
  hotlap scale --from trace.json.gz --gpus-per-node 8 --node-link 300GB/s
  hotlap scale --resume                     continue the last study where it was interrupted
  hotlap scale --device-price 2.50 --mtbf 50000h --checkpoint-time 60s ... train.py

Links are of one device, in one direction. exit code: as of `hotlap tune`."""

_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s?([kMGT]?)(b|bit|B)(?:ps|/s)?")
_FASTEST = 1e15
_HOURS = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s?(h|d|y)?")
_UNITS_OF_HOURS = {"h": 3600.0, "d": 86400.0, "y": 365.25 * 86400.0, None: 3600.0}
_MOST_NODES = 100_000
_MOST_PER_NODE = 1024


_OF_THE_STUDY = (
    "source", "nodes", "gpus_per_node", "device", "link", "link_latency", "node_link", "utilisation", "device_price",
    "mtbf", "checkpoint_time", "seed", "show_output", "startup_limit", "block_limit", "network", "unprotected",
    "python",
)  # fmt: skip


def parser() -> Parser:
    """The command's options."""
    made = options.script_parser("scale", _DESCRIPTION, _EXAMPLES)
    made.add_argument(
        "--from", dest="source", type=Path, metavar="STUDY", help="take the step from a study of this command, or "
        "from a trace of torch.profiler, and run nothing",
    )  # fmt: skip
    group = made.add_argument_group("the cluster")
    group.add_argument("--nodes", type=partial(_up_to, _MOST_NODES), default=1, metavar="N", help="nodes (default: 1)")
    group.add_argument(
        "--gpus-per-node", type=partial(_up_to, _MOST_PER_NODE), default=0, metavar="N",
        help="devices per node, or processes where the processor computes (default: as many as here)",
    )  # fmt: skip
    group.add_argument(
        "--device", choices=sorted(devices()), default="",
        help="the device, by its published figures (default: this machine's own)",
    )  # fmt: skip
    group.add_argument("--link", type=link, default=0.0, metavar="RATE", help="between nodes: 400Gb, 50GB/s")
    group.add_argument(
        "--link-latency", type=arguments.short_seconds, default=0.0, metavar="TIME",
        help="latency of a message between nodes: 5us (default: 0)",
    )  # fmt: skip
    group.add_argument(
        "--node-link", type=link, default=0.0, metavar="RATE",
        help="within a node (default: the device's published figure, else measured)",
    )  # fmt: skip
    group.add_argument(
        "--utilisation", type=arguments.share, metavar="SHARE",
        help="share of the device's peak that the script reaches (default: its share of this machine's rate)",
    )  # fmt: skip
    group = made.add_argument_group("costs and failures")
    group.add_argument("--device-price", type=price, metavar="PER_HOUR", help="price of an hour of one device: 2.50USD")
    group.add_argument("--mtbf", type=hours, metavar="TIME", help="mean time between failures of a device: 50000h, 5y")
    group.add_argument(
        "--checkpoint-time", type=arguments.seconds, metavar="TIME", help="what writing a checkpoint takes: 60s"
    )
    options.add_seed_option(made)
    options.add_study_options(made, rounds=False)
    add_resume_option(made)
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    made = parser()
    own, target = made.split(words)
    choices = made.parse_args(own)
    if choices.resume:
        options.refuse_changed(made, choices, _OF_THE_STUDY)
        return resumed(choices, target, choices.study / SCALES, "scale", engine, {"scale": engine.scale})
    asked = _asked(choices)
    if choices.source is not None:
        if target:
            raise UsageError("--from takes the step from a file, so no script is run.", remedy="Give one of them.")
        return _show(predicted_from(choices.source, asked), choices)
    choices, workload = options.parsed(made, words)
    chosen = msgspec.structs.replace(options.launch_options(choices), scale=asked)
    check(chosen, all_levers())
    return studies.new_study(choices, workload, chosen, choices.study / SCALES, engine, engine.scale)


def _asked(choices: argparse.Namespace) -> ScaleChoices:
    if (choices.mtbf is None) != (choices.checkpoint_time is None):
        raise UsageError("--mtbf and --checkpoint-time belong together.", remedy="Give both.")
    given = choices.device_price
    return ScaleChoices(
        nodes=choices.nodes,
        devices_per_node=choices.gpus_per_node,
        device=choices.device,
        link=choices.link,
        node_link=choices.node_link,
        link_seconds=choices.link_latency,
        utilisation=choices.utilisation,
        price_per_device_hour=given.per_hour if given is not None else None,
        currency=given.currency if given is not None else "",
        failure_seconds=choices.mtbf,
        checkpoint_seconds=choices.checkpoint_time,
    )


def _show(found: Study, choices: argparse.Namespace) -> int:
    if choices.json:
        screen.say(study_json(found))
    else:
        # The prediction is not stored, so no command could show it again.
        show_answer(choices, lambda: replace(summary(found), commands=()), lambda: report(found))
    return 0


def link(text: str) -> float:
    """Parse ``400Gb``, ``400Gbit/s`` or ``50GB/s`` as bytes per second.

    Raises :class:`argparse.ArgumentTypeError`.
    """
    found = _RATE.fullmatch(text.strip())
    rate = 0.0
    if found is not None:
        number, prefix, unit = found.groups()
        rate = float(number) * 1000.0 ** " kMGT".index(prefix or " ") / (1 if unit == "B" else 8)
    if not 0 < rate <= _FASTEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate; write it like 400Gb (bits) or 50GB/s (bytes)")
    return rate


def hours(text: str) -> float:
    """Parse ``50000h``, ``30d`` or ``5y`` as seconds. Raises :class:`argparse.ArgumentTypeError`."""
    found = _HOURS.fullmatch(text.strip())
    total = float(found[1]) * _UNITS_OF_HOURS[found[2]] if found else 0.0
    if not 0 < total < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above zero; write it like 50000h, 30d or 5y")
    return total


def _up_to(most: int, text: str) -> int:
    number = arguments.whole(1, text)
    if number > most:
        raise argparse.ArgumentTypeError(f"{text} is more than {most}")
    return number
