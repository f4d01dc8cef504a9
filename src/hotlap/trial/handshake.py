"""The handshake: before the first launch, the script's interpreter is started once to see whether hotlap works in it.

The interpreter runs ``-c pass`` in the environment of a trial; hotlap's hooks then write down what they found
(:mod:`hotlap.runtime.greeting`) and do nothing else. No answer means that no trial would be protected either.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import msgspec

from hotlap.errors import NOT_BOOTED, MissingPackageError, ScriptError
from hotlap.files import read_bounded
from hotlap.records.base import Record

PROTOCOL = 1
HANDSHAKE_VARIABLE = "HOTLAP_HANDSHAKE"
COMMAND = ("-c", "pass")
NEEDED_BY_TRIALS: Mapping[str, str] = {"msgspec": "0.18", "numpy": "", "psutil": "5.9"}
"""Packages that hotlap imports in a trial, each with its oldest version (empty: any)."""
NEEDED_BY_PLANS: Mapping[str, str] = {"msgspec": "0.18"}
"""The same for ``hotlap run``."""

Start: TypeAlias = Callable[[Sequence[str], Mapping[str, str]], tuple[int | None, str]]
"""Runs a command with these variables added to a trial's environment, and returns its exit status (negative for a
signal, None where it had to be ended) and what it wrote."""

OLDEST_PYTHON = (3, 11)
# What `make test-oldest-torch` installs.
_OLDEST_TORCH = (2, 6)
_LARGEST_BYTES = 2**20


class Package(Record, frozen=True, kw_only=True):
    """Whether the interpreter has a package, in which version (empty: unknown), or why it cannot be imported."""

    found: bool
    version: str = ""
    problem: str = ""


class Handshake(Record, frozen=True, kw_only=True):
    """What the script's interpreter is, and what it has."""

    protocol: int
    python: str
    executable: str
    packages: dict[str, Package]


class _Versioned(Record, frozen=True, kw_only=True):
    protocol: int


def require_numpy() -> None:
    """Raise :class:`MissingPackageError` where this interpreter, which compares what trials computed, has no numpy."""
    if find_spec("numpy") is None:
        raise MissingPackageError(
            "Trials are compared with numpy, which is not installed where hotlap is.",
            where=sys.executable,
            remedy='Install it: pip install "hotlap[trials]"',
        )


def handshake_environment(path: Path) -> dict[str, str]:
    """The variables that, added to a trial's, turn a launch into a handshake that is written to ``path``."""
    return {HANDSHAKE_VARIABLE: str(path)}


def shake_hands(start: Start, python: str, folder: Path, *, needed: Mapping[str, str] = NEEDED_BY_TRIALS) -> Handshake:
    """Start ``python`` by ``start`` and check that trials can run in it. ``folder`` is one that both sides can use.

    Raises :class:`ScriptError` that says what to install or to change, and what ``start`` raises.
    """
    path = folder / "handshake.json"
    path.unlink(missing_ok=True)
    status, output = start((python, *COMMAND), handshake_environment(path))
    return read_handshake(path, output, status, python=python, needed=needed)


def read_handshake(
    path: Path,
    output_text: str,
    exit_status: int | None,
    *,
    python: str = "the script's interpreter",
    needed: Mapping[str, str] = NEEDED_BY_TRIALS,
) -> Handshake:
    """The handshake that an interpreter has written to ``path``, checked.

    Raises :class:`ScriptError` where hotlap was not loaded in it, where Python or a package that is ``needed`` is
    missing or too old, where torch is, and where another version of hotlap answered.
    """
    try:
        content = read_bounded(path, _LARGEST_BYTES, follow=False)
    except OSError:
        raise _no_answer(python, output_text, exit_status) from None
    try:
        protocol = msgspec.json.decode(content, type=_Versioned).protocol
        if protocol != PROTOCOL:
            raise _other_version(python, protocol)
        found = msgspec.json.decode(content, type=Handshake)
    except msgspec.DecodeError as error:
        raise ScriptError(
            f"What {python} answered to hotlap cannot be read: {error}.", remedy="Install hotlap again."
        ) from error
    _check(found, python, needed)
    return found


def _no_answer(python: str, output: str, status: int | None) -> ScriptError:
    lines = [it.strip() for it in output.splitlines() if it.strip()]
    if status is None:
        return ScriptError(
            f"{python} did not end in time when it was started with nothing to do.",
            where=lines[-1][:300] if lines else "",
            remedy=f"Check what `{python} -c pass` does, and the sitecustomize of its environment.",
        )
    said = next((it for it in lines if status == NOT_BOOTED and it.startswith("hotlap: ")), "")
    if said:
        return ScriptError(said.removeprefix("hotlap: "), remedy="The script was not started.")
    if status != 0:
        return ScriptError(
            f"{python} fails when it is started with nothing to do (exit status {status}).",
            where=lines[-1][:300] if lines else "",
            remedy=f"Check that `{python} -c pass` works.",
        )
    return ScriptError(
        f"hotlap was not loaded by {python}, so the script would run without it.",
        remedy=(
            "Name the interpreter itself: a wrapper that starts it with -I, -S or -E, or that replaces PYTHONPATH, "
            "keeps hotlap out."
        ),
    )


def _other_version(python: str, protocol: int) -> ScriptError:
    return ScriptError(
        f"Another version of hotlap answered from {python} (protocol {protocol}, expected {PROTOCOL}).",
        remedy="Install one version of hotlap only, and do not change it while it runs.",
    )


def _check(found: Handshake, python: str, needed: Mapping[str, str]) -> None:
    name = found.executable or python
    if _numbers(found.python) < OLDEST_PYTHON:
        raise ScriptError(
            f"{name} is Python {found.python}; hotlap needs 3.11 or newer.", remedy="Name a newer interpreter."
        )
    wanting = [it for it, oldest in needed.items() if _problem(found.packages.get(it), oldest)]
    if wanting:
        problems = ", ".join(f"{it} ({_problem(found.packages.get(it), needed[it])})" for it in wanting)
        packages = " ".join(f"'{it}>={needed[it]}'" if needed[it] else it for it in wanting)
        raise ScriptError(
            f"{name} lacks what hotlap needs in the script's process: {problems}.",
            remedy=f"Install it: {shlex.quote(name)} -m pip install --upgrade {packages}",
        )
    torch = found.packages.get("torch")
    if torch is None or not torch.found:
        raise ScriptError(
            f"torch is not installed for {name}.", remedy="Install it there, or name the interpreter that has it."
        )
    if torch.version and _numbers(torch.version)[:2] < _OLDEST_TORCH:
        raise ScriptError(
            f"{name} has torch {torch.version}; hotlap needs {'.'.join(map(str, _OLDEST_TORCH))} or newer.",
            remedy="Upgrade it there, or name an interpreter that has a newer one.",
        )


def _problem(package: Package | None, oldest: str) -> str:
    """What is wrong with a package, or nothing."""
    if package is None or (not package.found and not package.problem):
        return "not installed"
    if not package.found:
        missing = package.problem.startswith("ModuleNotFoundError")
        return "not installed" if missing else f"cannot be imported: {package.problem[:200]}"
    if oldest and package.version and _numbers(package.version) < _numbers(oldest):
        return f"{package.version} is too old"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    """``(0, 18)`` for ``0.18rc1``: only the leading numbers are compared."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(it) for it in found.group().split(".")) if found is not None else ()
