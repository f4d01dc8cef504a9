"""Being told to end: SIGTERM, as from a job scheduler, and SIGHUP, as from a terminal that was closed.

Both have the effect of Ctrl-C: trials end, the study is saved as interrupted, the cursor comes back. Signals that were
ignored when hotlap was started stay ignored (``nohup``; Ctrl-C in a shell's background job), and whoever embeds hotlap
and handles them keeps that.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

_WATCHED = tuple(it for it in signal.Signals if it.name in ("SIGTERM", "SIGHUP"))


class Ended(KeyboardInterrupt):
    """Raised wherever the main thread is when such a signal comes: what undoes things on Ctrl-C does so here."""


class EndingSignals:
    """While the block runs these signals raise :class:`Ended`; ``received`` is the first that came.

    Further ones change nothing: what they ask for is under way. Does nothing outside of the main thread, where signals
    are not handled.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._process = os.getpid()
        self._handled: list[signal.Signals] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _WATCHED:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._handled.append(number)
                    signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in self._handled:
            signal.signal(number, signal.SIG_DFL)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # forked from us, and nothing to save: it ends as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self.received is None:
            self.received = signal.Signals(number)
            raise Ended
