"""Time what all processes of a group do at the same time, as long as it takes on the slowest one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any


class Stopwatch:
    """Starts all processes of the initialised group together. Times are in seconds."""

    def __init__(self, torch: Any, dist: Any, device: str) -> None:
        self.torch = torch
        self.processes: int = dist.get_world_size()
        self.place = torch.device(device, torch.cuda.current_device()) if device == "cuda" else torch.device(device)
        self._dist = dist
        self._wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None

    def timed(self, call: Callable[[], Any]) -> float:
        """The seconds of a call in this process."""
        self._dist.barrier()
        self._wait()
        began = time.perf_counter()
        call()
        self._wait()
        return time.perf_counter() - began

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Each time as the slowest process saw it: all processes decide by the same numbers."""
        times = self.torch.tensor(seconds, dtype=self.torch.float64, device=self.place)
        self._dist.all_reduce(times, op=self._dist.ReduceOp.MAX)
        found: list[float] = times.tolist()
        return found
