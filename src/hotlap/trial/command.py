"""The command, the environment and the folder with which the user's script is started."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from hotlap.allocators import PRELOADED
from hotlap.errors import HotlapError, ScriptError, StudyError
from hotlap.levers.api import find
from hotlap.records import Assignment, Setting, SwitchLevers, Workload
from hotlap.redact import redacted
from hotlap.trial.guard import PACKAGE_PARENT

HOOKS_DIRECTORY = PACKAGE_PARENT / "hotlap" / "runtime" / "site"
"""The folder whose ``sitecustomize`` brings hotlap into a process."""

INFERENCE_PROGRAM = "hotlap.runtime.inference"

KEPT_WHILE_SWITCHING = "keep-freed-memory"
"""The lever that a process which switches levers has besides."""

# Variables that an outer hotlap may have set for its own children.
_OURS = (
    "HOTLAP_ASSIGNMENT",
    "HOTLAP_SOCKET",
    "HOTLAP_RUN_DIRECTORY",
    "HOTLAP_PLAN",
    "HOTLAP_WATCH",
    "HOTLAP_HANDSHAKE",
    "HOTLAP_PROTECTION",
)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_LARGEST_HASH_SEED = 4294967295
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def command_of(workload: Workload) -> list[str]:
    """The command line, such as ``python script.py ...`` or ``python -m module ...``; for an inference target, the
    program that calls the model."""
    targets = {"script": [workload.target], "module": ["-m", workload.target]}
    target = targets.get(workload.kind, ["-m", INFERENCE_PROGRAM, workload.target])
    return [workload.python, *workload.interpreter_options, *target, *workload.arguments]


def environment_of(
    assignment: Assignment, added: Mapping[str, str], hooks_directory: Path = HOOKS_DIRECTORY
) -> dict[str, str]:
    """Our own environment with what is ``added``, what the plan's levers need set before the start, and the path on
    which hotlap is found. A process that switches levers keeps the memory that it freed.

    Raises :class:`hotlap.errors.PlanError` for a lever that does not exist.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _OURS} | dict(added)
    for setting in assignment.plan.settings:
        environment |= find(setting.lever).environment(setting)
    if assignment.instrument(SwitchLevers) is not None:
        environment = _keeping_memory(environment)
    path = [str(hooks_directory), *_python_path(assignment.workload, environment.get("PYTHONPATH", ""))]
    # An installed hotlap is found anyway; its folder on the path would put what lies next to it before the standard
    # library. Last, so that it hides nothing that the user named.
    if PACKAGE_PARENT.name not in _INSTALLED:
        path.append(str(PACKAGE_PARENT))
    return environment | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": str(assignment.seed % (_LARGEST_HASH_SEED + 1)),
    }


def _keeping_memory(environment: Mapping[str, str]) -> dict[str, str]:
    """The same, with freed memory kept for the next step, unless the allocator is tuned or replaced already.

    Configurations of one process share its heap: how much memory the system must provide again in a step of one depends
    on what the others freed, which is no property of any of them.
    """
    tuned = find(KEPT_WHILE_SWITCHING).environment(Setting(lever=KEPT_WHILE_SWITCHING))
    preloaded = environment.get("LD_PRELOAD", "")
    if any(it in preloaded for it in PRELOADED) or any(it in environment for it in tuned):
        return dict(environment)
    return {**environment, **tuned}


def _python_path(workload: Workload, inherited: str) -> list[str]:
    """The folders that the user's PYTHONPATH names; for a workload in a checkout those of the original in the copy."""
    checkout = workload.checkout
    if checkout is None:
        return [inherited]
    original = Path(checkout.original)
    named = [Path(it) for it in inherited.split(os.pathsep) if it]
    moved = [Path(checkout.copy) / it.relative_to(original) if it.is_relative_to(original) else it for it in named]
    return [*map(str, moved), *checkout.python_path]


def check(workload: Workload) -> None:
    """Raise :class:`ScriptError` for mistakes that can be found before anything is started."""
    directory = Path(workload.directory)
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.X_OK):
        raise ScriptError(
            f"The working directory {directory} does not exist or cannot be read.",
            remedy="Start from a directory that you may read.",
        )
    if shutil.which(workload.python) is None:
        raise ScriptError(
            f"There is no Python at {workload.python!r} that can be run.", remedy="Name an interpreter that exists."
        )
    if workload.kind == "script":
        _check_script(directory / workload.target)


def _check_script(script: Path) -> None:
    if not script.exists():
        raise ScriptError(f"There is no script {script}.", remedy="Check the name and the directory you are in.")
    if script.is_dir() and not (script / "__main__.py").exists():
        raise ScriptError(
            f"{script} is a folder without a __main__.py.", remedy="Name the script inside it, or use -m for a package."
        )
    if not os.access(script, os.R_OK):
        raise ScriptError(f"The script {script} may not be read.", remedy="Check its permissions.")


def start_failure(workload: Workload, error: OSError) -> HotlapError:
    """The error for a command that the system refuses to start."""
    if error.errno in _NO_ROOM and error.filename is not None:
        return unwritable(Path(str(error.filename)).parent, error)
    return ScriptError(
        f"The script cannot be started: {error.strerror or error}.",
        where=" ".join(command_of(redacted(workload))),
        remedy="Check that this command runs by itself.",
    )


def new_run_directory(parent: Path) -> Path:
    """A folder of its own for one launch: ``0001``, ``0002`` and so on below ``parent``, which is created if necessary.

    Raises :class:`StudyError` when it cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        taken = [int(it.name) for it in parent.iterdir() if it.name.isdecimal()]
        number = max(taken, default=0) + 1
        while True:
            directory = parent / f"{number:04d}"
            try:
                directory.mkdir()
            except FileExistsError:
                number += 1
            else:
                return directory
    except OSError as error:
        raise unwritable(parent, error) from error


def unwritable(folder: Path, error: OSError) -> StudyError:
    """The error for a folder for runs in which nothing can be created."""
    return StudyError(
        f"Nothing can be written below {folder}: {error.strerror or error}.",
        remedy="Free some space there, or choose another study directory.",
    )
