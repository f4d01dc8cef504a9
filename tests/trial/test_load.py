"""What is recorded with a block: processor time and the device's clock."""

from __future__ import annotations

import time
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from hotlap.records import Block
from hotlap.trial import load
from hotlap.trial.load import BlockWatch, Device

BLOCK = Block(steps=1, samples=1, wall_seconds=0.2)


def burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_processor_time_is_split_into_own_and_others() -> None:
    own, nobody = [psutil.Process()], list[psutil.Process]()
    watches = [BlockWatch(processes, Device("")) for processes in (own, nobody)]
    began = time.perf_counter()
    burn(0.3)
    wall = time.perf_counter() - began
    for watch in watches:
        watch.stop()
    block = Block(steps=1, samples=1, wall_seconds=wall)
    mine = watches[0].complete(block, own)
    others = watches[1].complete(block, nobody)
    assert mine.own_cpu_seconds == pytest.approx(0.3, abs=0.06)
    assert others.own_cpu_seconds == 0.0
    # The own time in one view is the others' time in the other.
    assert others.other_load - mine.other_load == pytest.approx(0.3 / wall, abs=0.15)
    assert mine.steps == 1


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:  # type: ignore[misc]
    """Simulate a driver of two devices, the second of which is throttled by heat."""
    asked = SimpleNamespace(handles=[])

    def by_index(index: int) -> str:
        asked.handles.append(index)
        if index > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return f"device {index}"

    def reasons(handle: str) -> int:
        hot: int = pynvml.nvmlClocksEventReasonSwThermalSlowdown
        return hot | pynvml.nvmlClocksEventReasonGpuIdle if handle == "device 1" else 0

    clocks = iter((1000, 2000, 3000))
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", by_index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda name: asked.handles.append(name) or "named")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", lambda handle, kind: next(clocks))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", reasons)
    load._library_present.cache_clear()
    yield asked
    load._library_present.cache_clear()


def test_used_memory_is_that_of_all_devices(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: SimpleNamespace(used=3 << 20))
    assert Device("").used_bytes() == 6 << 20

    def fails(handle: str) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", fails)
    assert Device("").used_bytes() is None


def watched(device: Device) -> Block:
    watch = BlockWatch([], device)
    watch.look()
    watch.look()
    watch.stop()
    return watch.complete(BLOCK, [])


def test_the_device_clock_is_averaged(nvml: SimpleNamespace) -> None:
    block = watched(Device(""))
    assert nvml.handles[0] == 0
    assert block.device_clock_mhz == 1500.0
    assert block.throttled == ""


@pytest.mark.parametrize(("visible", "handle"), [("1,0", 1), ("GPU-5a", "GPU-5a")])
def test_the_first_visible_device_is_read(nvml: SimpleNamespace, visible: str, handle: object) -> None:
    block = watched(Device(visible))
    assert nvml.handles[0] == handle
    assert block.throttled == ("heat" if handle == 1 else "")


def test_a_missing_device_gives_no_clock(nvml: SimpleNamespace) -> None:
    assert watched(Device("7")).device_clock_mhz is None


def test_a_driver_that_answers_nothing_gives_nothing(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers and on slices, which report neither clocks nor power."""

    def fails(*given: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in ("ClockInfo", "CurrentClocksThrottleReasons", "TotalEnergyConsumption", "PowerUsage"):
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", fails)
    device = Device("")
    assert (device.clock_mhz(), device.throttle_bits()) == (None, 0)
    assert (device.energy_joules(1), device.power_watts(1)) == (None, None)
    block = watched(device)
    assert (block.device_clock_mhz, block.throttled, block.device_energy_joules) == (None, "", None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", fails)
    assert (Device("").clock_mhz(), Device("").throttle_bits(), Device("").used_bytes()) == (None, 0, None)
