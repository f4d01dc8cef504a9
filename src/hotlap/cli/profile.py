"""``hotlap profile``: show why a script is slow; no levers are tried."""

from __future__ import annotations

import msgspec

from hotlap import api
from hotlap.cli import options, studies
from hotlap.cli.arguments import Parser
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
    made = options.script_parser("profile", _DESCRIPTION, _EXAMPLES)
    group = made.add_argument_group("the profile")
    options.add_budget_option(group)
    options.add_seed_option(group)
    group.add_argument(
        "--batch-sizes", action="store_true",
        help="also time the model with half, twice and four times the batch, fed from memory",
    )  # fmt: skip
    options.add_study_options(made)
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices, workload = options.parsed(parser(), words)
    chosen = msgspec.structs.replace(options.launch_options(choices), batch_sizes=choices.batch_sizes)
    check(chosen, all_levers())
    return studies.new_study(choices, workload, chosen, choices.study / api.PROFILES, engine, engine.profile)
