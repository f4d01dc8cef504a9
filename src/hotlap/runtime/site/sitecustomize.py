"""Boots hotlap inside a process of the user's.

This folder is put first on PYTHONPATH, so that Python imports this file before the script begins, in the process itself
and in every Python process it starts. It takes its own folder off the path again, lets the sitecustomize that the
environment would otherwise have had run, and only then looks whether there is something to do.
"""

import os
import sys
from pathlib import Path


def _leave_the_path() -> None:
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]


def _run_the_next_sitecustomize() -> None:
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


_leave_the_path()
_run_the_next_sitecustomize()
if "HOTLAP_ASSIGNMENT" in os.environ or "HOTLAP_PLAN" in os.environ:
    from hotlap.runtime.boot import boot

    boot()
