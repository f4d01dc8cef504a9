"""Signals as for a program started from a terminal, however the tests themselves were started.

A shell that is not interactive starts background jobs with SIGINT ignored, and nohup does so with SIGHUP; a program
inherits that. ``conftest.py`` restores the defaults for the tests and so for every child. ``usual`` and
``ignoring_interrupts`` are for ``subprocess.Popen``, as ``preexec_fn``, where a test is about just that.
"""

from __future__ import annotations

import signal
from types import FrameType

_PYTHONS_OWN = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these itself, and ``subprocess`` gives its children the default."""


def usual() -> None:
    """Ignore no signal that ends a program."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def ignoring_interrupts() -> None:
    """As in a background job of a shell script that was started with nohup."""
    usual()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def make_usual_here() -> None:
    """Block and ignore no signal in this process, nor in programs that it starts.

    A hang-up that was ignored still does not end this process: its handler does nothing, and programs do not inherit
    handlers.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals():
        if signal.getsignal(number) is not signal.SIG_IGN or number in _PYTHONS_OWN:
            continue
        handler = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: _do_nothing}.get(number, signal.SIG_DFL)
        signal.signal(number, handler)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass
