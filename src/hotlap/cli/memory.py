"""``hotlap memory``: where the memory of a training step goes, and what keeps more with every step."""

from __future__ import annotations

from functools import partial

from hotlap import api
from hotlap.cli import arguments, options, studies
from hotlap.cli.arguments import Parser
from hotlap.cli.workload import workload_from
from hotlap.experiment.options import FEWEST_MEMORY_STEPS, Options, check
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
  hotlap report --html page.html            shows the step as a picture that can be zoomed

exit code: as of `hotlap tune`."""


def parser() -> Parser:
    """The command's options."""
    made = Parser(
        "hotlap memory",
        _DESCRIPTION,
        _EXAMPLES,
        usage="hotlap memory [options] SCRIPT [arguments of the script]\n"
        "       hotlap memory [options] -m MODULE [arguments of the module]",
    )
    defaults = Options()
    made.add_argument(
        "--steps", type=partial(arguments.whole, FEWEST_MEMORY_STEPS), default=defaults.memory_steps, metavar="N",
        help=f"count this many steps (default: {defaults.memory_steps})",
    )  # fmt: skip
    made.add_argument(
        "--seed", type=partial(arguments.whole, 0), default=0, metavar="N",
        help="seed the launch with this number (default: 0)",
    )  # fmt: skip
    options.add_isolation_options(made)
    options.add_limit_options(made)
    options.add_output_options(made, plan=False)
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    made = parser()
    own, target = made.split(words)
    choices = made.parse_args(own)
    workload = workload_from(target, "memory")
    chosen = Options(
        memory_steps=choices.steps,
        seed=choices.seed,
        startup_limit_seconds=choices.startup_limit,
        block_limit_seconds=choices.block_limit,
        show_output=choices.show_output,
        network=choices.network,
        unprotected=choices.unprotected,
    )
    check(chosen, all_levers())
    return studies.new_study(choices, workload, chosen, choices.study / MEMORIES, engine, engine.memory)
