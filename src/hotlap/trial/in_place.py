"""Replacing this process by the user's script, with a plan's levers and nothing else of hotlap.

No process is started, so that signals, terminal, exit code and process number are the same as without hotlap.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hotlap.levers.api import find
from hotlap.records import Plan, Workload
from hotlap.trial.command import HOOKS_DIRECTORY, command_of, start_failure
from hotlap.trial.guard import PACKAGE_PARENT
from hotlap.trial.handshake import HANDSHAKE_VARIABLE, NEEDED_BY_PLANS, shake_hands

_OURS = (
    "HOTLAP_ASSIGNMENT",
    "HOTLAP_SOCKET",
    "HOTLAP_RUN_DIRECTORY",
    "HOTLAP_PLAN",
    "HOTLAP_WATCH",
    "HOTLAP_PROTECTION",
    HANDSHAKE_VARIABLE,
)
_HANDSHAKE_LIMIT_SECONDS = 120.0
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def environment_with(
    plan: Plan, plan_path: Path | None, environment: Mapping[str, str], watch_folder: Path | None = None
) -> dict[str, str]:
    """``environment`` with what the plan's levers need before the start, and the path on which their hooks are found.

    Processes that train write what is watched of them into ``watch_folder``. Raises
    :class:`hotlap.errors.PlanError` for a lever that does not exist.
    """
    found = {name: value for name, value in environment.items() if name not in _OURS}
    for setting in plan.settings:
        found |= find(setting.lever).environment(setting)
    path = [str(HOOKS_DIRECTORY), found.get("PYTHONPATH", "")]
    if PACKAGE_PARENT.name not in _INSTALLED:
        path.append(str(PACKAGE_PARENT))
    found["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    if plan_path is not None:
        found["HOTLAP_PLAN"] = str(plan_path.absolute())
    if watch_folder is not None:
        found["HOTLAP_WATCH"] = str(watch_folder.absolute())
    return found


def check_interpreter(workload: Workload, environment: Mapping[str, str]) -> None:
    """Start the workload's interpreter once, with nothing to do, to see that a plan's levers will be switched on in it.

    Raises :class:`hotlap.errors.ScriptError` that says what is missing there.
    """

    def start(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int | None, str]:
        try:
            done = subprocess.run(
                command,
                env={**environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_HANDSHAKE_LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return None, (error.output or b"").decode("utf-8", "replace")
        except OSError as error:
            raise start_failure(workload, error) from error
        return done.returncode, done.stdout.decode("utf-8", "replace")

    with tempfile.TemporaryDirectory(prefix="hotlap-") as folder:
        shake_hands(start, workload.python, Path(folder), needed=NEEDED_BY_PLANS)


def become(workload: Workload, environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by the script's.

    Raises :class:`hotlap.errors.ScriptError` when the system refuses.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(workload.python, command_of(workload), dict(environment))
    except OSError as error:
        raise start_failure(workload, error) from error
