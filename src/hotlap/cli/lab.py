"""``hotlap lab``: full precision, mixed precision, mixed precision and compile, side by side."""

from __future__ import annotations

from hotlap import api
from hotlap.cli import options, studies
from hotlap.cli.arguments import Parser
from hotlap.cli.workload import add_python_option

_DESCRIPTION = """\
Runs the script three ways that take turns: unmodified (in full precision), with mixed precision, and
with mixed precision and torch.compile. Shows each one's speed with its interval, memory, and whether
training still produces the same results."""

_EXAMPLES = """\
examples:
  hotlap lab train.py --epochs 1
  hotlap lab --budget 5m --json train.py"""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap lab", _DESCRIPTION, _EXAMPLES, usage="hotlap lab [options] SCRIPT [arguments of the script]")
    add_python_option(made)
    options.add_search_options(made)
    options.add_output_options(made)
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices, workload = options.parsed(parser(), words)
    chosen = options.options_from(choices)
    return studies.new_study(choices, workload, chosen, choices.study / api.LABS, engine, engine.lab)
