"""Give a process, and those that it starts, a simulated device where ``SIMULATED_DEVICE`` names one, and tell which
lines it ran where ``TRACED_LINES`` names a receiver."""

import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120


def _run_the_next() -> None:
    """The file of this name that the process would have had without ours."""
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != _HERE]
    own = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own


if os.environ.get("SIMULATED_DEVICE") or os.environ.get("TRACED_LINES"):
    sys.path.insert(0, os.path.dirname(os.path.dirname(_HERE)))  # noqa: PTH120
    try:
        from simulated import boot, lines
    finally:
        sys.path.pop(0)
    if os.environ.get("TRACED_LINES"):
        lines.start()
    if os.environ.get("SIMULATED_DEVICE"):
        boot.boot()
_run_the_next()
