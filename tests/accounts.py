"""An ordinary user's account, which only root can switch to."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

NOBODY = 65534
"""The number of an account that owns nothing."""


def ordinary_user(imports: str) -> dict[str, Any]:
    """The arguments of ``subprocess`` that run a child as an ordinary user; none where this process is one already.

    Skips where such a user may not start this interpreter, or not import what it must. The child is made as hotlap
    makes its own, without any of root's rights when the program begins: ``setpriv`` would keep them for a moment.
    """
    if os.geteuid() != 0:
        return {}
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        done = subprocess.run(  # type: ignore[call-overload]
            [sys.executable, "-c", f"import {imports}"], cwd="/", env=path, capture_output=True, check=False, **user
        )
    except PermissionError:
        pytest.skip("an ordinary user may not start this interpreter")
    if done.returncode:
        pytest.skip(f"an ordinary user cannot import {imports} with this interpreter")
    return user
