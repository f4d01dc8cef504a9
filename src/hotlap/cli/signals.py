"""Handle SIGTERM, as from a job scheduler, and SIGHUP, as from a closed terminal.

Both have the effect of Ctrl-C: trials end, the study is saved as interrupted, the cursor is restored. Signals that were
ignored when hotlap started stay ignored (``nohup``; Ctrl-C in a shell's background job), and handlers of a
program that embeds hotlap stay in place.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

_WATCHED = tuple(it for it in signal.Signals if it.name in ("SIGTERM", "SIGHUP"))


class Ended(KeyboardInterrupt):
    """Raised in the main thread when such a signal arrives, so that clean-up runs as after Ctrl-C."""


class EndingSignals:
    """Raise :class:`Ended` on these signals; ``received`` is the first one.

    Further signals change nothing, because the clean-up is under way. Outside of the main thread this does nothing,
    since signals are not handled there.
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
        if os.getpid() != self._process:  # a forked child has nothing to save: it ends by the default action
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self.received is None:
            self.received = signal.Signals(number)
            raise Ended
