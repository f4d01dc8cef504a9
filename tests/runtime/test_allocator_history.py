"""What is read of a device's allocator, and the history that it writes for PyTorch's viewer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hotlap.runtime.memory.allocator import SNAPSHOT, AllocatorHistory

STATS = {"inactive_split_bytes.all.current": 7, "num_alloc_retries": 2}


class Memory:
    """``torch.cuda.memory`` of a device whose allocator keeps a history, unless ``refuses``."""

    def __init__(self, *, refuses: bool = False) -> None:
        self._refuses = refuses
        self.calls: list[str] = []

    def _record_memory_history(self, enabled: str | None = "all", max_entries: int = 0) -> None:
        if self._refuses:
            raise RuntimeError("cudaMallocAsync does not yet support recordHistory")
        self.calls.append("on" if enabled else "off")

    def _dump_snapshot(self, path: str) -> None:
        self.calls.append("written")
        Path(path).write_bytes(b"history")

    def memory_stats(self, index: int) -> dict[str, int]:
        return STATS

    def max_memory_allocated(self, index: int) -> int:
        return 100 + index

    def max_memory_reserved(self, index: int) -> int:
        return 200 + index


def history_of(memory: Memory, folder: Path) -> tuple[AllocatorHistory, list[str]]:
    properties = SimpleNamespace(total_memory=1000)
    torch = SimpleNamespace(cuda=SimpleNamespace(memory=memory, get_device_properties=lambda index: properties))
    notes: list[str] = []
    return AllocatorHistory(torch, folder, notes.append), notes


def model_on(*devices: tuple[str, int | None]) -> Any:
    parameters = [SimpleNamespace(device=SimpleNamespace(type=kind, index=index)) for kind, index in devices]
    return SimpleNamespace(parameters=lambda: iter(parameters))


def test_the_device_of_a_model_is_recorded_once(tmp_path: Path) -> None:
    memory = Memory()
    history, notes = history_of(memory, tmp_path)
    for _ in range(2):
        history.begin(model_on(("cpu", None), ("cuda", 1)))
    found = history.end()
    assert found is not None and notes == []
    assert memory.calls == ["on", "written", "off"]
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes, found.limit_bytes) == (101, 201, 1000)
    assert (found.fragmented_bytes, found.retries) == (7, 2)
    assert found.snapshot_path == str(tmp_path / SNAPSHOT) and Path(found.snapshot_path).read_bytes() == b"history"


def test_a_model_on_a_cpu_has_no_allocator(tmp_path: Path) -> None:
    memory = Memory()
    history, _ = history_of(memory, tmp_path)
    history.begin(model_on(("cpu", None)))
    assert history.end() is None and memory.calls == []


@pytest.mark.parametrize(
    ("refuses", "folder", "note"),
    [
        (True, "", "The device's allocator keeps no history, so there is none for PyTorch's viewer."),
        (False, "missing", "The allocator's history could not be written: No such file or directory."),
    ],
)
def test_without_a_history_there_are_still_counts(tmp_path: Path, refuses: bool, folder: str, note: str) -> None:
    memory = Memory(refuses=refuses)
    history, notes = history_of(memory, tmp_path / folder)
    history.begin(model_on(("cuda", 0)))
    found = history.end()
    assert found is not None and found.snapshot_path == "" and found.peak_allocated_bytes == 100
    assert notes == [note]
    assert memory.calls == ([] if refuses else ["on", "written", "off"])
