"""Memory step by step: what the device's allocator holds, what the process holds, and which variables keep growing.

Read from the allocator's own counters, so the device is not waited for. Steps that run under the profiler, and those
after it, are left out: the profiler needs memory itself.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hotlap.evidence import MemoryTimeline
from hotlap.runtime.devices import device_kind
from hotlap.runtime.evidence.holders import Holders
from hotlap.runtime.evidence.host_memory import host_bytes_reader
from hotlap.runtime.interception import Interception
from hotlap.runtime.unit_clock import UnitClock

FIRST_LOOK_AT_VARIABLES = 6
"""Steps before the first scan; each further one comes after twice as many, so a long run has few."""


class MemoryWatch:
    """Records a row at the end of each counted step, and occasionally scans the user's variables."""

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        self._torch = interception.hooks.torch
        self._roots = interception.roots
        self._clock = clock
        self._host_bytes = host_bytes_reader()
        self._device: tuple[Any, int] | None = None
        self._looked_for_device = False
        self._allocated: list[int] = []
        self._reserved: list[int] = []
        self._host: list[int] = []
        self._counting = self._over = False
        self._holders = Holders(self._torch)
        self._next_look = FIRST_LOOK_AT_VARIABLES
        interception.hooks.step_ended.append(self._step_ended)

    def pause(self) -> None:
        self._counting, self._over = False, True

    def resume(self) -> None:
        self._counting = not self._over

    def _step_ended(self) -> None:
        if not self._counting:
            return
        self._host.append(self._host_bytes())
        if not self._looked_for_device:
            self._looked_for_device = True
            self._device = self._training_device()
        if self._device is not None:
            module, index = self._device
            counters = module.memory.memory_stats_as_nested_dict(index)
            self._allocated.append(_current(counters, "allocated_bytes"))
            self._reserved.append(_current(counters, "reserved_bytes"))
        if self._clock.steps_done >= self._next_look:
            self._holders.look(self._clock.steps_done)
            self._next_look = 2 * self._clock.steps_done

    def _training_device(self) -> tuple[Any, int] | None:
        """The module of torch and the number of the device that the first root on any lies on; None for a CPU."""
        for root in self._roots.all():
            kind = device_kind(root)
            if kind in ("cuda", "xpu"):
                first = next(it for it in root.parameters() if it.device.type == kind)
                return getattr(self._torch, kind), int(first.device.index)
        return None

    def result(self) -> dict[str, object]:
        """The field ``memory``."""
        if self._allocated or self._host:
            self._holders.look(self._clock.steps_done)
        timeline = MemoryTimeline(
            allocated_bytes=tuple(self._allocated),
            reserved_bytes=tuple(self._reserved),
            host_bytes=tuple(self._host),
            holders=self._holders.result(),
        )
        if self._device is None:
            return {"memory": timeline}
        module, index = self._device
        counters = module.memory.memory_stats_as_nested_dict(index)
        return {
            "memory": msgspec.structs.replace(
                timeline,
                peak_allocated_bytes=int(module.max_memory_allocated(index)),
                limit_bytes=int(module.get_device_properties(index).total_memory),
                retries=int(counters.get("num_alloc_retries", 0)),
            )
        }


def _current(counters: dict[str, Any], name: str) -> int:
    """The nested dictionary is the allocator's own; making it flat would take longer than reading it."""
    return int(counters.get(name, {}).get("all", {}).get("current", 0))
