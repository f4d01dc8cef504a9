"""The device memory of this process, as torch's caching allocator and the driver count it.

Source: PyTorch documentation, "CUDA semantics", memory management.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class DevicePeaks:
    """The process's peaks, and those of single blocks, for which the allocator's own peaks are reset."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._earlier_bytes = self._earlier_footprint_bytes = 0

    @property
    def allocated_bytes(self) -> int:
        """The most that tensors held at once, of the device on which they held most; 0 where none was used."""
        return max(self._earlier_bytes, self._allocated_since())

    @property
    def footprint_bytes(self) -> int:
        """The most that the process held of a device: what its allocator had reserved, and everything else on it now.
        That is its CUDA context with the loaded kernels, and what other processes hold, which the driver does not
        report separately."""
        return max([self._earlier_footprint_bytes, *(_footprint(self._torch, it) for it in _devices(self._torch))])

    def begin_block(self) -> None:
        """From now on :meth:`of_block` counts what is held."""
        self._earlier_bytes, self._earlier_footprint_bytes = self.allocated_bytes, self.footprint_bytes
        for it in _devices(self._torch):
            self._torch.cuda.reset_peak_memory_stats(it)

    def of_block(self) -> int | None:
        """The most that tensors held since :meth:`begin_block`; None where no device was used."""
        return self._allocated_since() or None

    def _allocated_since(self) -> int:
        return max((int(self._torch.cuda.max_memory_allocated(it)) for it in _devices(self._torch)), default=0)


def allocator_retries(torch: Any) -> int:
    """How often the allocator found no memory, freed its cache, and tried again."""
    return sum(int(torch.cuda.memory_stats(it).get("num_alloc_retries", 0)) for it in _devices(torch))


def _footprint(torch: Any, index: int) -> int:
    most_reserved = int(torch.cuda.max_memory_reserved(index))
    if not most_reserved:
        return 0
    free_bytes, total_bytes = torch.cuda.mem_get_info(index)
    return int(total_bytes - free_bytes) + most_reserved - int(torch.cuda.memory_reserved(index))


def _devices(torch: Any) -> Iterator[int]:
    """Queries initialise nothing: a script that uses no device gets no context from us."""
    return iter(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else iter(())
