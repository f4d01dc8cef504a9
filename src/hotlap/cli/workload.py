"""Find the workload that the end of a command line names."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hotlap.cli import screen
from hotlap.cli.launchers import (
    Typed,
    active_interpreter,
    has_package,
    is_usual_interpreter,
    require_one_machine,
    understood,
)
from hotlap.errors import UsageError
from hotlap.records import Workload
from hotlap.trial.interpreter import check_interpreter, checked_interpreter, has_torch

_EXAMPLE = "Give one, for example `hotlap {command} train.py --epochs 1` or `hotlap {command} -m package.train`."


def add_python_option(
    group: argparse._ActionsContainer,
    *,
    default: str = "hotlap's own, or that of the active environment if hotlap's has no torch",
) -> None:
    """Add the interpreter that runs the script."""
    group.add_argument(
        "--python",
        metavar="PATH",
        help="run the script with this interpreter, or that of this environment; hotlap need not be installed there "
        f"(default: {default})",
    )


def interpreter_from(choices: argparse.Namespace, *, trains: bool = True) -> str:
    """Return the interpreter that ``--python`` names, checked, or that of the active environment; empty for ours.

    Raises :class:`UsageError` if there is none, and :class:`hotlap.errors.ScriptError` if scripts cannot be run with
    it.
    """
    if choices.python:
        return checked_interpreter(choices.python, trains=trains)
    python = "" if has_torch() else active_interpreter()
    if python:
        screen.note(f"hotlap's environment has no torch: the script is run with {python}.")
        check_interpreter(python, trains=trains)
    return python


def workload_from(words: Sequence[str], command: str, python: str = "") -> Workload:
    """Find the script or module that the words name, with its arguments.

    ``python -u``, ``torchrun``, ``accelerate launch`` or ``uv run`` may precede it (:mod:`hotlap.cli.launchers`);
    ``python`` is the interpreter that an option names.

    Raises :class:`UsageError` when nothing is named, when there is no such script or module, or when what
    precedes it is unknown; and, unless the command is ``run``, when a launcher waits for other machines.
    """
    typed = understood(words, command, python)
    if not typed.words or typed.words == ("-m",):
        raise UsageError("No script was given.", remedy=_EXAMPLE.format(command=command))
    found = _module(typed) if typed.words[0] == "-m" else _script(typed)
    if found.kind == "module" and command != "run":
        require_one_machine(found.target, found.arguments, command)
    return msgspec.structs.replace(found, interpreter_options=typed.options)


def _script(typed: Typed) -> Workload:
    target = typed.words[0]
    path = Path(target)
    if target.startswith("-"):
        raise UsageError(
            f"{target!r} is not a script.", remedy="Put options of Python after `python`, or give the script."
        )
    if not path.exists():
        raise UsageError(f"There is no script {target!r} in {Path.cwd()}.", remedy="Check the name and the directory.")
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UsageError(
            f"{target!r} is a folder without a __main__.py.", remedy="Give the script inside it, or use -m."
        )
    return _workload("script", target, typed.words[1:], typed.python)


def _module(typed: Typed) -> Workload:
    name = typed.words[1]
    if typed.python == sys.executable and not has_package(name.partition(".")[0]):
        raise UsageError(
            f"There is no module {name!r}.",
            remedy="Check the name, or run hotlap from a directory where `python -m` finds it.",
        )
    return _workload("module", name, typed.words[2:], typed.python)


def _workload(kind: str, target: str, arguments: Sequence[str], python: str) -> Workload:
    return Workload(
        kind="module" if kind == "module" else "script",
        target=target,
        arguments=tuple(arguments),
        directory=os.fspath(Path.cwd()),
        python=python,
        python_named=not is_usual_interpreter(python),
    )
