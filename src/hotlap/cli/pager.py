"""Long output through the pager, as git does it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hotlap.cli import screen

VARIABLES = ("HOTLAP_PAGER", "PAGER")
"""The first one that is set is used; one that is empty, or ``cat``, means no pager."""

_USUAL = "less"
_DEFAULTS = {"LESS": "FRX", "LV": "-c"}
"""As git sets them: ends at once where all fits the screen, keeps colours, and leaves the text on the screen."""

_PLAIN_WORD = re.compile(r"[\w./+-]+")
_NO_SUCH_PROGRAM = (126, 127)


def show_long(text: str, *, paged: bool) -> None:
    """Print a text, through the pager if ``paged`` and standard output is a terminal."""
    command = _pager() if paged and _is_read_by_a_person() else ""
    if not (command and _show_in(command, text)):
        screen.say(text.rstrip("\n"))


def _is_read_by_a_person() -> bool:
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        return False
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def _pager() -> str:
    """The command of the pager; empty for none, and for one that does not exist."""
    wanted = next((os.environ[it] for it in VARIABLES if it in os.environ), _USUAL).strip()
    if wanted in ("", "cat"):
        return ""
    program = wanted.split()[0]
    missing = _PLAIN_WORD.fullmatch(program) and shutil.which(program) is None
    return "" if missing else wanted


def _show_in(command: str, text: str) -> bool:
    """Show the text in the pager, until it is closed; False if it could not be started.

    A pager that is closed before it has read everything has shown what its reader wanted to see.
    """
    sys.stdout.flush()
    environment = {**_DEFAULTS, **os.environ}
    try:
        process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment)
    except OSError:
        return False
    assert process.stdin is not None
    try:
        with _interrupts_left_to_the_pager():
            with suppress(BrokenPipeError):
                process.stdin.write(text.encode(sys.stdout.encoding or "utf-8", "replace"))
            with suppress(BrokenPipeError):
                process.stdin.close()
            return process.wait() not in _NO_SUCH_PROGRAM
    finally:
        if process.poll() is None:
            process.terminate()


@contextmanager
def _interrupts_left_to_the_pager() -> Iterator[None]:
    """Let Ctrl-C reach the pager alone, for which it may mean something else than the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
