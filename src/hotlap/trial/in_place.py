"""Handing this process over to the user's script, with a plan's levers and nothing else of ours.

Nothing is started: the process becomes the script's, so that signals, terminal, exit code and process number are as if
python had been typed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from hotlap.levers.api import find
from hotlap.records import Plan, Workload
from hotlap.trial.command import HOOKS_DIRECTORY, command_of, start_failure
from hotlap.trial.guard import PACKAGE_PARENT

_OURS = ("HOTLAP_ASSIGNMENT", "HOTLAP_SOCKET", "HOTLAP_RUN_DIRECTORY", "HOTLAP_PLAN")
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def environment_with(plan: Plan, plan_path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` with what the plan's levers need before the start, and the path on which their hooks are found.

    Raises :class:`hotlap.errors.PlanError` for a lever that does not exist.
    """
    found = {name: value for name, value in environment.items() if name not in _OURS}
    for setting in plan.settings:
        found |= find(setting.lever).environment(setting)
    path = [str(HOOKS_DIRECTORY), found.get("PYTHONPATH", "")]
    if PACKAGE_PARENT.name not in _INSTALLED:
        path.append(str(PACKAGE_PARENT))
    return found | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "HOTLAP_PLAN": str(plan_path.absolute()),
    }


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
