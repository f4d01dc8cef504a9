"""Waiting until a device has been cleaned up after children that ended.

Their memory on it may stay taken for some time, above all where a service holds it (NVIDIA's MPS) or a process had to
be killed. A launch that follows at once would find no room for its model, and its levers would be blamed.
"""

from __future__ import annotations

import time

from hotlap.trial.load import Device

_LIMIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
_NOTABLE_BYTES = 64 << 20
"""Less than any context takes."""


class Teardown:
    """Compares the memory that is used while no child is alive with what was used before there were any."""

    def __init__(self, device: Device, *, limit_seconds: float = _LIMIT_SECONDS) -> None:
        self._device = device
        self._limit_seconds = limit_seconds
        self._usual_bytes: int | None = None

    def wait(self) -> None:
        """Return when no more is used than before; what is still used after the limit belongs to others. Call it only
        while no child is alive. Does nothing without a device, or if its driver does not report memory."""
        used = self._device.used_bytes()
        deadline = time.perf_counter() + self._limit_seconds
        while used is not None and self._usual_bytes is not None and used > self._usual_bytes + _NOTABLE_BYTES:
            if time.perf_counter() > deadline:
                break
            time.sleep(_PAUSE_SECONDS)
            used = self._device.used_bytes()
        self._usual_bytes = used
