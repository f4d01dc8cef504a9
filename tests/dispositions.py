"""Signals as a program finds them that a person starts from a terminal, however the tests themselves were started.

A shell that is not interactive starts background jobs with SIGINT ignored, and nohup does so with SIGHUP; a program
inherits that. Give this to ``subprocess.Popen`` as ``preexec_fn``.
"""

from __future__ import annotations

import signal


def usual() -> None:
    """Nothing that ends a program is ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def ignoring_interrupts() -> None:
    """As in a background job of a shell script that was started with nohup."""
    usual()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
