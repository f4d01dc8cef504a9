"""Starting hotlap in a process of the user: either hotlap starts, or the process ends.

A script that ran on without hotlap would write over the user's files, or train without the levers of its plan. So a
failure in a part of hotlap's ends the process with one sentence and the exit code :data:`hotlap.errors.NOT_BOOTED`.
Only the standard library is imported here: a package that is missing has to be named.
"""

from __future__ import annotations

import contextlib
import os
import sys
from types import TracebackType
from typing import NoReturn

from hotlap.errors import NOT_BOOTED, HotlapError
from hotlap.runtime import presence

HANDSHAKE_VARIABLE = "HOTLAP_HANDSHAKE"
_OLDEST_PYTHON = 0x030B0000
_LONGEST_SENTENCE = 1000
_STANDARD_ERROR = 2


def enter() -> None:
    """Start hotlap as the environment says, before the user's script begins."""
    with FailureEndsProcess():
        if HANDSHAKE_VARIABLE in os.environ:
            from hotlap.runtime import greeting

            greeting.write(os.environ[HANDSHAKE_VARIABLE])
            return
        if sys.hexversion < _OLDEST_PYTHON:
            version = ".".join(map(str, sys.version_info[:3]))
            raise HotlapError(
                f"{sys.executable} is Python {version}.", remedy="hotlap needs Python 3.11 or newer for the script."
            )
        from hotlap.runtime.boot import boot

        boot()


class FailureEndsProcess:
    """A context in which any exception ends the process, also one that the script would have caught."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            end_process(_sentence(error))


def end_process(sentence: str) -> NoReturn:
    """Print to standard error why hotlap cannot continue in this process, and end it at once."""
    line = " ".join(sentence.split())[:_LONGEST_SENTENCE]
    with contextlib.suppress(OSError):
        presence.note(f"{presence.FAILED} {line}")
    flush()
    with contextlib.suppress(OSError):
        os.write(_STANDARD_ERROR, f"hotlap: {line}\n".encode("utf-8", "backslashreplace"))
    os._exit(NOT_BOOTED)


def flush() -> None:
    """Flush the script's output, as far as its streams still work."""
    for stream in (sys.stdout, sys.stderr):
        flush = getattr(stream, "flush", None)
        if flush is not None:
            # A closed or full output cannot be fixed now.
            with contextlib.suppress(OSError, ValueError):
                flush()


def _sentence(error: BaseException) -> str:
    what, remedy = _explained(error)
    return f"The process was ended because hotlap could not start in it: {what} {remedy}"


def _explained(error: BaseException) -> tuple[str, str]:
    """What happened, and what to do about it."""
    if isinstance(error, HotlapError):
        return error.what, error.remedy
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("hotlap"):
        import shlex  # here, not in every process of a trial

        package = error.name.partition(".")[0]
        install = f"Install it: {shlex.quote(sys.executable)} -m pip install {package}"
        return f"the package {package} is missing in {sys.executable}.", install
    if isinstance(error, ImportError):
        return f"{error}.", f"Install hotlap and what it needs again for {sys.executable}."
    if isinstance(error, OSError):
        where = f"{os.fspath(error.filename)!r} cannot be used: " if error.filename is not None else ""
        return f"{where}{error.strerror or error}.", "Free some space there, or check who may write to it."
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted.", "Start it again."
    what = f"{type(error).__name__}: {error} ({_place(error)})."
    return what, "This is a fault in hotlap; please report it with this line."


def _place(error: BaseException) -> str:
    """File and line in which the error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown place"
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"  # noqa: PTH119
