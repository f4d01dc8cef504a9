"""``hotlap batch``: throughput and memory by batch size, and the size from which more gains nothing."""

from __future__ import annotations

from functools import partial

import msgspec

from hotlap import api
from hotlap.cli import arguments, options, studies
from hotlap.cli.arguments import Parser
from hotlap.experiment.options import BatchChoices, check
from hotlap.levers.api import all_levers

_DESCRIPTION = """\
Runs the script with larger and smaller batches, through its own DataLoader or by its own option,
and shows samples per second and peak memory by batch size: the knee, which is the smallest size
with nearly the best throughput, and what fits into memory with headroom. Out of memory ends one
launch and nothing else. Another batch size changes what is learned: only `hotlap tune --allow
batch-size` writes one into a plan, after it compared losses."""

_EXAMPLES = """\
examples:
  hotlap batch train.py
  hotlap batch --headroom 20% --max-batch-size 512 train.py
  hotlap batch --batch-flag=--batch-size train.py   where the DataLoader's size cannot be changed
  hotlap batch --model-alone train.py               also without its loader: what the model alone gains

exit code: as of `hotlap tune`."""


def parser() -> Parser:
    """The command's options."""
    made = options.script_parser("batch", _DESCRIPTION, _EXAMPLES)
    group = made.add_argument_group("the search")
    options.add_batch_flag_option(group)
    group.add_argument(
        "--headroom", type=arguments.share, default=0.1, metavar="SHARE",
        help="share of the memory that must stay free (default: 10%%)",
    )  # fmt: skip
    group.add_argument(
        "--max-batch-size", type=partial(arguments.whole, 1), metavar="N",
        help="try no larger batch size (default: what fits)",
    )  # fmt: skip
    group.add_argument("--model-alone", action="store_true", help="also time the model alone at these sizes")
    options.add_budget_option(group)
    options.add_seed_option(group)
    options.add_study_options(made)
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices, workload = options.parsed(parser(), words)
    chosen = msgspec.structs.replace(
        options.launch_options(choices),
        batch=BatchChoices(
            flag=choices.batch_flag,
            headroom=choices.headroom,
            most=choices.max_batch_size,
            model_alone=choices.model_alone,
        ),
    )
    check(chosen, all_levers())
    return studies.new_study(choices, workload, chosen, choices.study / api.BATCHES, engine, engine.batch)
