"""Boots hotlap inside a process of the user's.

This folder is put first on PYTHONPATH, so that Python imports this file before the script begins, in the process itself
and in every Python process it starts. It takes its own folder off the path again, runs the sitecustomize that the
environment would otherwise have had, and then boots hotlap. An exception of that one is raised again afterwards, so
that Python treats it as usual; after SystemExit or KeyboardInterrupt no script will run. If hotlap cannot be booted,
the process ends.
"""

import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120
_WANTED = ("HOTLAP_HANDSHAKE", "HOTLAP_ASSIGNMENT", "HOTLAP_PLAN", "HOTLAP_WATCH")


def _leave_the_path() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != _HERE]


def _boot() -> None:
    if not any(name in os.environ for name in _WANTED):
        return
    code = 1  # until hotlap's own code for this can be read
    try:
        code = _import_this_hotlap()
        from hotlap.runtime.entrance import enter
    except BaseException as error:  # whatever it is, without hotlap the script must not run
        line = f"hotlap: The process was ended because hotlap cannot be imported in {sys.executable}: {error}\n"
        os.write(2, line.encode("utf-8", "backslashreplace"))
        os._exit(code)
        raise
    enter()


def _import_this_hotlap() -> int:
    """Import the package that this file is part of: the interpreter may have another one, or none at all. Returns the
    exit code of a process in which hotlap cannot be booted."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # noqa: PTH120
    sys.path.insert(0, folder)
    try:
        from hotlap.errors import NOT_BOOTED
    finally:
        sys.path.remove(folder)
    return NOT_BOOTED


_leave_the_path()
sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except Exception:  # raised again: the user's own file may fail in any way
    # Python will write a note (none, where there is no such module) and start the script.
    _boot()
    raise
_boot()
