"""The memory in use at the end of each step, so that growth shows long before memory is full.

The device's bytes are those that its allocator holds for tensors, which takes no synchronisation; without a device
they are those that the C library has allocated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hotlap.records import WatchMemory
from hotlap.runtime.devices import device_kind
from hotlap.runtime.evidence.host_memory import host_bytes_reader
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: WatchMemory) -> None:
    """One row for each step, from the first on."""
    hooks = place.hooks
    rows: list[int] = []
    reader: Callable[[], int] | None = None

    def step_ended() -> None:
        nonlocal reader
        if reader is None:
            reader = _reader(hooks.torch, place.interception.roots.all())
        rows.append(reader())

    def keep() -> None:
        hooks.found["step_end_bytes"] = tuple(rows)

    hooks.step_ended.append(step_ended)
    hooks.before_exit.append(keep)


def _reader(torch: Any, roots: Any) -> Callable[[], int]:
    """What reads the bytes in use: of all devices of the kind that the models are on, or else of the host."""
    kinds = {device_kind(root) for root in roots}
    for kind in ("cuda", "xpu"):
        if kind in kinds:
            device = getattr(torch, kind)
            return lambda: sum(int(device.memory_allocated(it)) for it in range(device.device_count()))
    return host_bytes_reader()
