"""What a device's caching allocator did, and its history for PyTorch's own viewer.

``torch.cuda.memory`` names both functions with an underscore, and documents them under "Understanding CUDA memory
usage"; they are called here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotlap.records import AllocatorUse

SNAPSHOT = "memory-snapshot.pickle"
_MOST_EVENTS = 100_000


class AllocatorHistory:
    """Records the allocator's history of the device that a model is on, from the first training forward on."""

    def __init__(self, torch: Any, directory: Path, note: Callable[[str], None]) -> None:
        self._torch = torch
        self._path = directory / SNAPSHOT
        self._note = note
        self._index: int | None = None
        self._recorded = False

    def begin(self, root: Any) -> None:
        """Does nothing for a model on a CPU, or while it records."""
        device = next((it.device for it in root.parameters() if it.device.type == "cuda"), None)
        if device is not None and self._index is None:
            self._index = device.index
            try:
                self._torch.cuda.memory._record_memory_history(max_entries=_MOST_EVENTS)
            except (AttributeError, RuntimeError):  # as cudaMallocAsync, which refuses
                self._note("The device's allocator keeps no history, so there is none for PyTorch's viewer.")
            else:
                self._recorded = True

    def end(self) -> AllocatorUse | None:
        """Write the snapshot, and have the allocator record no more; None where no device was used."""
        if self._index is None:
            return None
        memory, index = self._torch.cuda.memory, self._index
        is_written = self._recorded and self._write()
        counters = memory.memory_stats(index)
        return AllocatorUse(
            peak_allocated_bytes=int(memory.max_memory_allocated(index)),
            peak_reserved_bytes=int(memory.max_memory_reserved(index)),
            fragmented_bytes=int(counters.get("inactive_split_bytes.all.current", 0)),
            retries=int(counters.get("num_alloc_retries", 0)),
            limit_bytes=int(self._torch.cuda.get_device_properties(index).total_memory),
            snapshot_path=str(self._path) if is_written else "",
        )

    def _write(self) -> bool:
        """Whether the snapshot could be written; nothing more is recorded."""
        memory = self._torch.cuda.memory
        try:
            memory._dump_snapshot(str(self._path))
        except OSError as error:
            self._note(f"The allocator's history could not be written: {error.strerror}.")
            return False
        finally:
            memory._record_memory_history(enabled=None)
        return True
