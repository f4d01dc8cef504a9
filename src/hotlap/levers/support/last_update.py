"""Reading weights and state as the last update left them, on another thread than the training's. Not a lever."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


class LastUpdate:
    """On a device: the moment on the training's stream at which the last update was complete."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._event: Any = None
        self._device = 0

    def record(self) -> None:
        """An update has just been issued, by the calling thread."""
        cuda = self._torch.cuda
        if cuda.is_initialized():
            self._device = cuda.current_device()
            self._event = cuda.Event()
            self._event.record()

    def awaited(self) -> AbstractContextManager[Any]:
        """A stream that waits for the update alone: what training has issued since may wait for the rank that this is
        read for."""
        if self._event is None:
            context: AbstractContextManager[Any] = self._torch.no_grad()
            return context
        stream = self._torch.cuda.Stream(self._device)
        stream.wait_event(self._event)
        context = self._torch.cuda.stream(stream)
        return context
