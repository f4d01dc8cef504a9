"""hotlap's folder on the ``PYTHONPATH`` of the Python processes that a trial's script starts.

A library that starts Python with its own ``sys.path``, as the compile workers of torch are, or with a ``PYTHONPATH`` of
its own would lose hotlap there: the process would be neither measured nor protected. Where such an environment still
names the trial, the folder is put in front of the path again.
"""

from __future__ import annotations

import _posixsubprocess
import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

Call: TypeAlias = Callable[..., Any]

_FOLDER = str(Path(__file__).resolve().parent / "site")
_PATH, _TRIAL = b"PYTHONPATH=", b"HOTLAP_ASSIGNMENT="
_ENVIRONMENT = 5
"""The position of the environment among the arguments of ``fork_exec``."""


def install() -> None:
    """Put the stand-ins in place of what :mod:`subprocess` and :mod:`multiprocessing` start programs with."""
    fork_exec: Call = _posixsubprocess.fork_exec
    posix_spawn: Call = os.posix_spawn

    @wraps(fork_exec)
    def fork_executing(*arguments: Any) -> Any:
        given = list(arguments)
        if given[_ENVIRONMENT] is not None:
            given[_ENVIRONMENT] = with_hotlap(given[_ENVIRONMENT])
        return fork_exec(*given)

    @wraps(posix_spawn)
    def spawning(path: Any, words: Any, environment: Mapping[Any, Any] | None, /, **keywords: Any) -> Any:
        return posix_spawn(path, words, _spawned_with(environment), **keywords)

    _posixsubprocess.fork_exec = fork_executing
    os.posix_spawn = spawning
    if "subprocess" in sys.modules:
        vars(sys.modules["subprocess"])["_fork_exec"] = fork_executing


def with_hotlap(environment: list[bytes]) -> list[bytes]:
    """The variables, such as ``b"A=1"``, with hotlap's folder on the path if they name a trial and lack it there."""
    if not any(it.startswith(_TRIAL) for it in environment):
        return environment
    path = next((it.removeprefix(_PATH) for it in environment if it.startswith(_PATH)), b"")
    folder = os.fsencode(_FOLDER)
    if folder in path.split(os.fsencode(os.pathsep)):
        return environment
    others = [it for it in environment if not it.startswith(_PATH)]
    return [*others, _PATH + os.fsencode(os.pathsep).join(filter(None, (folder, path)))]


def _spawned_with(environment: Mapping[Any, Any] | None) -> Mapping[Any, Any] | None:
    if environment is None or environment is os.environ:  # from Python 3.13 on None stands for its own
        return environment
    variables = [os.fsencode(name) + b"=" + os.fsencode(value) for name, value in environment.items()]
    found = with_hotlap(variables)
    return environment if found is variables else dict(it.split(b"=", 1) for it in found)
