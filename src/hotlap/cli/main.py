"""The command ``hotlap``: choose the subcommand and report errors."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hotlap import __version__
from hotlap.cli import screen
from hotlap.cli.arguments import nearest
from hotlap.cli.entry import READS_ONLY
from hotlap.cli.signals import Ended, EndingSignals
from hotlap.errors import HotlapError, UsageError
from hotlap.machine.systems import require_linux

if TYPE_CHECKING:
    from hotlap.api import Engine

COMMANDS = {
    "tune": "find what makes a script faster here, prove it, and store it as a plan",
    "run": "run a script with the levers of a plan, without changing its source",
    "profile": "show why a script is slow: causes, evidence, lines; no levers are tried",
    "batch": "find the batch size from which more samples per step gain nothing, and what fits",
    "memory": "show where memory goes over a step and by module, and what grows",
    "scale": "predict the step on more devices, from the step measured here",
    "patch": "write the kept levers as a diff of the source, tested before it is shown",
    "report": "show the last study again; measures nothing",
    "history": "show all studies of this project, as a table and a plot",
    "check": "for CI: check for slowdowns and changed results",
    "lab": "compare full precision, mixed precision, and mixed precision + compile",
    "infer": "find what makes the calls of a model faster, and keep its outputs right",
    "nan": "find the operation and line that produced the first NaN or infinity",
    "trace": "analyse a trace of torch.profiler: where time went, why the device waited",
    "diff": "show what got slower between two traces or studies, and why",
    "doctor": "show what this machine can do, what is in the way, and what to do about it",
    "findings": "list the known causes of slowness, and what to do about each",
    "lint": "find patterns in the source that make training slow or wrong, and fix them",
    "rule": "list the patterns that lint finds, or show the page of one",
    "new": "write a complete, fast training script to begin with",
    "levers": "list the levers: what each does, when it helps, which proof it requires",
    "export": "write a study as tables or for a tracker, or its model as files to deploy",
    "demo": "tune a small workload that ships with hotlap",
    "schema": "list the JSON documents, or show the schema of one or of plan files",
    "completion": "write the script with which a shell completes hotlap",
}

RUNS_SCRIPTS = frozenset(
    {"tune", "run", "profile", "batch", "memory", "scale", "patch", "check", "lab", "infer", "nan", "doctor", "demo"}
)
"""Commands that start a script, or test whether one can be started: they need Linux."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_INTERRUPTED = 130
_BROKEN_PIPE = 141
_KILLED = 128
"""Exit codes for signals are this plus the signal's number, as in shells."""


def main(argv: Sequence[str] | None = None, *, engine: Engine | None = None) -> int:
    """Run the command line and return the exit code; ``engine`` runs the trials."""
    words = list(sys.argv[1:] if argv is None else argv)
    screen.keep_quiet(False)
    signals = EndingSignals()
    code = 0
    try:
        with signals:
            code = _attempt(words, engine, signals)
    except Ended:
        pass  # the signal came after the command had finished
    if signals.received is None:
        return code
    try:
        screen.note(f"ended by {signals.received.name}", style="yellow", always=True)
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # the terminal is gone
        _write_nowhere(sys.stdout, sys.stderr)
    return _KILLED + signals.received


def _attempt(words: list[str], engine: Engine | None, signals: EndingSignals) -> int:
    """Run the command, report its errors, and return the exit code."""
    try:
        code = _dispatch(words, engine)
        sys.stdout.flush()
    except HotlapError as error:
        if _shows_traceback(words):
            import traceback

            screen.quote_error(traceback.format_exc())
        screen.complain(error)
        return error.exit_code if error.exit_code >= 0 else 128 - error.exit_code
    except Ended:
        return _KILLED
    except KeyboardInterrupt:
        screen.note("interrupted", style="yellow", always=True)
        return _INTERRUPTED
    except BrokenPipeError:
        _write_nowhere(sys.stdout)
        return _BROKEN_PIPE
    except OSError as error:
        if signals.received is not None:
            return _KILLED  # the terminal is closed: nothing can be written
        if error.errno not in _NO_ROOM or _shows_traceback(words):
            raise
        screen.complain(_disk_is_full(error))
        return 1
    except SystemExit as leaving:  # argparse exits after printing its help
        return leaving.code if isinstance(leaving.code, int) else 0
    return code


def _disk_is_full(error: OSError) -> HotlapError:
    where = str(error.filename) if error.filename is not None else ""
    return HotlapError(
        f"A disk that hotlap writes to is full: {error.strerror}.",
        where=where,
        remedy="Free space or inodes there, or point TMPDIR (temporary files) or --study (studies) at another disk.",
    )


def _write_nowhere(*streams: TextIO) -> None:
    """Discard what is still buffered for a reader that has gone.

    Python's flush at exit would otherwise fail again and change the exit code.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def overview() -> str:
    """Return the text of ``hotlap --help``."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            f"hotlap {__version__}: makes a PyTorch training script faster, and proves it.",
            "",
            "usage: hotlap COMMAND [options] SCRIPT [arguments of the script]",
            "",
            *lines,
            "",
            "Begin with `hotlap tune train.py`; see `hotlap COMMAND --help` for details.",
        ]
    )


def _dispatch(words: list[str], engine: Engine | None) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        screen.say(overview())
        return 0
    if words[0] in ("-V", "--version"):
        screen.say(f"hotlap {__version__}")
        return 0
    if words[0] not in COMMANDS:
        raise _no_such_command(words[0])
    if words[0] in RUNS_SCRIPTS:
        require_linux(f"`hotlap {words[0]}`")
    command = importlib.import_module(f"hotlap.cli.{words[0]}")
    if engine is None and words[0] not in READS_ONLY:
        from hotlap.api import Engine as RealEngine

        engine = RealEngine()
    code: int = command.main(words[1:], engine)
    return code


def _no_such_command(word: str) -> UsageError:
    if word.endswith(".py") or Path(word).is_file():
        return UsageError(f"{word!r} is not a command of hotlap.", remedy=f"Did you mean `hotlap tune {word}`?")
    return UsageError(
        f"There is no command named {word!r}.", remedy=f"{nearest(word, COMMANDS)}`hotlap --help` lists them."
    )


def _shows_traceback(words: list[str]) -> bool:
    """Return whether ``--debug`` is an option of hotlap, not of the script."""
    if not words or words[0] not in COMMANDS:
        return "--debug" in words
    try:
        command = importlib.import_module(f"hotlap.cli.{words[0]}")
        own, _ = command.parser().split(words[1:])
    except (ModuleNotFoundError, HotlapError):
        return "--debug" in words
    return "--debug" in own


if __name__ == "__main__":
    sys.exit(main())
