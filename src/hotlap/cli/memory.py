"""``hotlap memory``: show where a training step's memory goes, and what grows."""

from __future__ import annotations

from functools import partial

import msgspec

from hotlap import api
from hotlap.cli import arguments, options, studies
from hotlap.cli.arguments import Parser
from hotlap.errors import UsageError
from hotlap.experiment.options import FEWEST_MEMORY_STEPS, EstimateChoices, Options, check
from hotlap.levers.api import all_levers
from hotlap.study import MEMORIES

_DESCRIPTION = """\
Runs the first steps of the script with every storage counted: parameters, gradients, optimizer state,
activations, inputs and temporaries, at the peak, over a step, and by module. Names what holds more
memory with every step, and the line that adds to it. On a device, also shows what the allocator
reserved, and keeps its history for PyTorch's viewer. Results and random numbers stay the same."""

_EXAMPLES = """\
examples:
  hotlap memory train.py
  hotlap memory --steps 40 train.py         where memory grows slowly
  hotlap memory --estimate --batch-size 64 --device-memory 24GiB train.py
  hotlap report --html page.html            shows the step as a picture that can be zoomed

exit code: as of `hotlap tune`."""


def parser() -> Parser:
    """The command's options."""
    made = options.script_parser("memory", _DESCRIPTION, _EXAMPLES)
    defaults = Options()
    made.add_argument(
        "--steps", type=partial(arguments.whole, FEWEST_MEMORY_STEPS), default=defaults.memory_steps, metavar="N",
        help=f"count this many steps (default: {defaults.memory_steps})",
    )  # fmt: skip
    group = made.add_argument_group("the estimate")
    group.add_argument(
        "--estimate", action="store_true",
        help="compute peaks by batch size and by lever on tensors without data; the device need not be there",
    )  # fmt: skip
    group.add_argument(
        "--batch-size", type=partial(arguments.whole, 1), action="append", default=[], metavar="N",
        help="estimate for this batch size; may be repeated (default: the script's own)",
    )  # fmt: skip
    group.add_argument(
        "--device-memory", type=arguments.size, default=0, metavar="SIZE",
        help="memory of the device, such as 24GiB: shows what fits with 10%% to spare",
    )  # fmt: skip
    group.add_argument(
        "--ranks", type=partial(arguments.whole, 1), default=1, metavar="N",
        help="also estimate parameters, gradients and optimizer state sharded over N ranks (default: 1)",
    )  # fmt: skip
    group.add_argument(
        "--batch-flag", default="", metavar="FLAG",
        help="change the batch size by this option of the script (default: in its DataLoader)",
    )  # fmt: skip
    options.add_seed_option(made)
    options.add_study_options(made, rounds=False)
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices, workload = options.parsed(parser(), words)
    estimate = EstimateChoices(
        batch_sizes=tuple(choices.batch_size),
        device_memory_bytes=choices.device_memory,
        ranks=choices.ranks,
        flag=choices.batch_flag,
    )
    if not choices.estimate and estimate != EstimateChoices():
        raise UsageError(
            "--batch-size, --device-memory, --ranks and --batch-flag are for an estimate.", remedy="Add --estimate."
        )
    chosen = msgspec.structs.replace(
        options.launch_options(choices), memory_steps=choices.steps, estimate=estimate if choices.estimate else None
    )
    check(chosen, all_levers())
    return studies.new_study(choices, workload, chosen, choices.study / MEMORIES, engine, engine.memory)
