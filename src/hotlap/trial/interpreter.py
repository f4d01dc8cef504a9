"""Whether scripts can be run with an interpreter, by starting it once: for one that the user names."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import msgspec

from hotlap.errors import ScriptError, UsageError
from hotlap.records.base import Record
from hotlap.trial.handshake import NEEDED_BY_TRIALS, OLDEST_PYTHON

_LIMIT_SECONDS = 60.0
_PROGRAM = """
import json, sys
found = []
if sys.version_info >= (3, 4):
    from importlib.util import find_spec
    found = [it for it in sys.argv[1:] if find_spec(it) is not None]
print(json.dumps({"python": list(sys.version_info[:3]), "found": found}))
"""
"""Runs with any Python from 2.6 on, so that one that is too old can say so."""


class _Answer(Record, frozen=True, kw_only=True):
    python: tuple[int, int, int]
    found: tuple[str, ...]


def has_torch() -> bool:
    """Return whether torch is installed for hotlap's own interpreter."""
    return find_spec("torch") is not None


def named_interpreter(text: str) -> str:
    """Find the interpreter that a path, an environment's folder, or a name on the search path stands for.

    Raises :class:`UsageError` if there is none.
    """
    path = Path(text).expanduser()
    inside = path / "bin" / "python"
    found = shutil.which(os.fspath(inside if path.is_dir() else path))
    if found is None:
        raise UsageError(
            f"There is no interpreter {text!r}.", remedy="Give a path such as .venv/bin/python, or the folder .venv."
        )
    return os.fspath(Path(found).absolute())  # a link stays one: it decides which environment is used


def checked_interpreter(name: str, *, trains: bool = True) -> str:
    """Find the interpreter of that name, which can run scripts.

    Raises :class:`UsageError` if there is none, and :class:`ScriptError` as :func:`check_interpreter` does.
    """
    python = named_interpreter(name)
    check_interpreter(python, trains=trains)
    return python


def check_interpreter(python: str, *, trains: bool = True) -> None:
    """Check that ``python`` is new enough and, unless it only applies a plan, has what trials need.

    Raises :class:`ScriptError` that says in one sentence what is missing.
    """
    needed = (*NEEDED_BY_TRIALS,) if trains else ("msgspec",)
    found = _answer_of(python, ("torch", *needed))
    version = ".".join(map(str, found.python))
    if found.python < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ScriptError(
            f"{python} is Python {version}; hotlap needs {oldest} or newer.", remedy="Name a newer interpreter."
        )
    if "torch" not in found.found:
        raise ScriptError(
            f"torch is not installed for {python} (Python {version}).", remedy="Name the interpreter that has it."
        )
    missing = [it for it in needed if it not in found.found]
    if missing:
        wanted = " ".join(f"'{it}>={NEEDED_BY_TRIALS[it]}'" if NEEDED_BY_TRIALS[it] else it for it in missing)
        raise ScriptError(
            f"{python} lacks what hotlap imports in the script's process: {', '.join(missing)}.",
            remedy=f"Install it there: {shlex.quote(python)} -m pip install {wanted}",
        )


def _answer_of(python: str, packages: tuple[str, ...]) -> _Answer:
    try:
        done = subprocess.run(
            (python, "-c", _PROGRAM, *packages),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_SECONDS,
            check=False,
            cwd=Path(python).parent,  # not here, where a script of the user's may have the name of a package
        )
        last = done.stdout.splitlines()[-1:]
        return msgspec.json.decode(last[0] if last and done.returncode == 0 else b"", type=_Answer)
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        raise ScriptError(
            f"{python} does not work as a Python interpreter.", remedy=f"Check that `{python} -c pass` works."
        ) from None
