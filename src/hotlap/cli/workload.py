"""From the tail of a command line to the workload it names."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from hotlap.errors import UsageError
from hotlap.records import Workload

_TORCHRUN = "torch.distributed.run"
_EXAMPLE = "Name one, as in `hotlap {command} train.py --epochs 1` or `hotlap {command} -m package.train`."


def workload_from(words: Sequence[str], command: str) -> Workload:
    """The script or module that the words name, with its arguments.

    ``python train.py`` in front is taken as it is meant, and ``torchrun`` is the module it starts. Raises
    :class:`UsageError` when nothing is named or when there is no such script or module.
    """
    python, words = _without_python(list(words))
    if not words or words == ["-m"]:
        raise UsageError("No script was named.", remedy=_EXAMPLE.format(command=command))
    if words[0] == "-m":
        return _module(words[1], words[2:], python)
    if words[0] == "torchrun" and not Path("torchrun").exists():
        return _module(_TORCHRUN, words[1:], python)
    return _script(words[0], words[1:], python)


def _script(target: str, arguments: Sequence[str], python: str) -> Workload:
    path = Path(target)
    if target.startswith("-"):
        raise UsageError(
            f"{target!r} is no script.", remedy="Options of Python itself cannot be given; name the script."
        )
    if not path.exists():
        raise UsageError(f"There is no script {target!r} in {Path.cwd()}.", remedy="Check the name and the directory.")
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UsageError(
            f"{target!r} is a folder without a __main__.py.", remedy="Name the script inside it, or use -m."
        )
    return _workload("script", target, arguments, python)


def _module(name: str, arguments: Sequence[str], python: str) -> Workload:
    top = name.partition(".")[0]
    if PathFinder.find_spec(top, [os.fspath(Path.cwd()), *sys.path]) is None and top not in sys.builtin_module_names:
        raise UsageError(f"There is no module {name!r}.", remedy="Check the name, or start where `python -m` finds it.")
    return _workload("module", name, arguments, python)


def _workload(kind: str, target: str, arguments: Sequence[str], python: str) -> Workload:
    return Workload(
        kind="module" if kind == "module" else "script",
        target=target,
        arguments=tuple(arguments),
        directory=os.fspath(Path.cwd()),
        python=python,
    )


def _without_python(words: list[str]) -> tuple[str, list[str]]:
    """The interpreter and the words behind it, where the words begin with one; else our own interpreter."""
    if not words or Path(words[0]).name not in ("python", "python3", f"python3.{sys.version_info.minor}"):
        return sys.executable, words
    if Path(words[0]).is_file() and not os.access(words[0], os.X_OK):
        return sys.executable, words
    named = shutil.which(words[0])
    if named is None:
        raise UsageError(f"There is no interpreter {words[0]!r}.", remedy="Leave it out: hotlap uses its own.")
    return named, words[1:]
