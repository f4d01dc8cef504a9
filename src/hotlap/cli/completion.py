"""``hotlap completion``: write the script with which a shell completes hotlap's commands and options."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.errors import HotlapError

SHELLS = ("bash", "zsh", "fish")
_WITHOUT_SCRIPT = frozenset({"doctor", "demo"})
"""Commands that run something, but no script of the user's."""

_EXAMPLES = """\
examples:
  hotlap completion bash > ~/.local/share/bash-completion/completions/hotlap
  hotlap completion zsh > ~/.zfunc/_hotlap     with ~/.zfunc in fpath
  hotlap completion fish > ~/.config/fish/completions/hotlap.fish

Write it again after an upgrade of hotlap."""


def parser() -> Parser:
    """The command's options."""
    made = Parser(
        "hotlap completion",
        "Writes the script with which a shell completes hotlap's commands, their options, and files.",
        examples=_EXAMPLES,
        usage="hotlap completion [options] SHELL",
    )
    made.add_argument("shell", choices=SHELLS, help="the shell that reads it")
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    try:
        import shtab
    except ModuleNotFoundError as missing:
        raise HotlapError(
            "Completion needs shtab, which is not installed.", remedy='pip install "hotlap[completion]"'
        ) from missing
    screen.say(shtab.complete(_all_commands(shtab.FILE), shell=choices.shell))
    return 0


def _all_commands(file: Any) -> argparse.ArgumentParser:
    """One parser for the whole command line: each command parses its own words, so that starting one imports no other.

    ``file`` is what shtab completes a file by, which is what every word is that has no choices: a script, a study.
    """
    from hotlap.cli.main import COMMANDS, RUNS_SCRIPTS

    whole = argparse.ArgumentParser("hotlap")
    whole.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = whole.add_subparsers()
    for name, what in COMMANDS.items():
        own: Parser = importlib.import_module(f"hotlap.cli.{name}").parser()
        for it in own.positionals:
            if not it.choices:
                it.complete = file  # type: ignore[attr-defined]
        command = commands.add_parser(name, parents=[own], add_help=False, help=what)
        if name in RUNS_SCRIPTS - _WITHOUT_SCRIPT and not own.positionals:
            command.add_argument("script", nargs="*").complete = file  # type: ignore[attr-defined]
    return whole
