"""``hotlap profile``: say why a script is slow; nothing is tried."""

from __future__ import annotations

import msgspec

from hotlap import api
from hotlap.cli import arguments, options, studies
from hotlap.cli.arguments import Parser
from hotlap.cli.workload import workload_from
from hotlap.experiment.options import check
from hotlap.levers.api import all_levers

_DESCRIPTION = """\
Runs the script unmodified, measures where each step's time goes and what its loader and its model
reach alone, looks at some steps under torch.profiler, and names the causes of lost time: what each
costs, the evidence, the line, and what to do. No lever is tried."""

_EXAMPLES = """\
examples:
  hotlap profile train.py --epochs 1           all that follows the script belongs to the script
  hotlap profile --budget 1m -m package.train  leaves out what does not fit, and says so
  hotlap profile --json train.py
  hotlap profile --batch-sizes train.py        what the model makes of smaller and larger batches
  hotlap report                                shows it again

The trace of the profiled steps stays in the study's folder. exit code: as of `hotlap tune`."""


def parser() -> Parser:
    """The command's options."""
    made = Parser(
        "hotlap profile",
        _DESCRIPTION,
        _EXAMPLES,
        usage="hotlap profile [options] SCRIPT [arguments of the script]\n"
        "       hotlap profile [options] -m MODULE [arguments of the module]",
    )
    group = made.add_argument_group("the profile")
    group.add_argument(
        "--budget", type=arguments.seconds, metavar="TIME", help="stop after this long: 90s, 10m (default: no limit)"
    )
    options.add_seed_option(group)
    group.add_argument(
        "--batch-sizes", action="store_true",
        help="also time the model with half, twice and four times the batch, fed from memory",
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
    workload = workload_from(target, "profile")
    chosen = msgspec.structs.replace(options.launch_options(choices), batch_sizes=choices.batch_sizes)
    check(chosen, all_levers())
    return studies.new_study(choices, workload, chosen, choices.study / api.PROFILES, engine, engine.profile)
