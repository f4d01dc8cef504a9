"""What else went on while a block was timed: the child's own processor time, the others', and the device's clock."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import psutil
import pynvml

from hotlap.records import Block
from hotlap.trial import tree

# Bits of NVML's clocks event reasons that mean "slower than it could be" (idle and the user's own settings do not).
_THROTTLED = (
    (pynvml.nvmlClocksEventReasonSwPowerCap, "power cap"),
    (pynvml.nvmlClocksThrottleReasonHwSlowdown, "hardware slowdown"),
    (pynvml.nvmlClocksEventReasonSwThermalSlowdown, "heat"),
    (pynvml.nvmlClocksThrottleReasonHwThermalSlowdown, "heat (hardware)"),
    (pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"),
)


class Device:
    """The NVIDIA device whose clock is looked at: the first of ``visible_devices`` (as CUDA_VISIBLE_DEVICES), or the
    first of all. Tells nothing where there is none, or its driver does not say."""

    def __init__(self, visible_devices: str) -> None:
        self._handle = _handle(visible_devices.split(",")[0].strip()) if _library_present() else None

    @property
    def present(self) -> bool:
        return self._handle is not None

    def clock_mhz(self) -> float | None:
        """The clock of the multiprocessors right now."""
        if self._handle is None:
            return None
        try:
            return float(pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM))
        except pynvml.NVMLError:
            return None

    def throttle_bits(self) -> int:
        """NVML's reasons for the clock being what it is, as bits."""
        if self._handle is None:
            return 0
        try:
            return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
        except pynvml.NVMLError:
            return 0


class BlockWatch:
    """Watches one block of one child, from its making until :meth:`stop`; ``processes`` are the child's."""

    def __init__(self, processes: Sequence[psutil.Process], device: Device) -> None:
        self._device = device
        self._clocks_mhz: list[float] = []
        self._throttle_bits = 0
        self._switches, self._own_seconds = _used_by(processes)
        self._busy_seconds = _busy_seconds()
        self._began = time.perf_counter()
        self._wall_seconds = 0.0

    def look(self) -> None:
        """Sample the device's clock. Meant to be called now and then while the block runs."""
        clock = self._device.clock_mhz()
        if clock is not None:
            self._clocks_mhz.append(clock)
            self._throttle_bits |= self._device.throttle_bits()

    def stop(self) -> None:
        """The block has ended; what is still to be looked up may take its time."""
        self._wall_seconds = time.perf_counter() - self._began
        self._busy_seconds = _busy_seconds() - self._busy_seconds

    def complete(self, block: Block, processes: Sequence[psutil.Process]) -> Block:
        """The block with what was seen; ``processes`` are the child's at its end. The counters cover the steps that
        were led in with too, and are scaled to the block's own wall time; they tick in hundredths of a second."""
        wall, busy = self._wall_seconds, self._busy_seconds
        switches, own = _used_by(processes)
        own = max(0.0, own - self._own_seconds)
        share = min(1.0, block.wall_seconds / wall) if wall > 0 else 1.0
        return msgspec.structs.replace(
            block,
            own_cpu_seconds=own * share,
            other_load=max(0.0, busy - own) / wall if wall > 0 else 0.0,
            involuntary_switches=max(block.involuntary_switches, switches - self._switches),
            device_clock_mhz=sum(self._clocks_mhz) / len(self._clocks_mhz) if self._clocks_mhz else None,
            throttled=", ".join(name for bit, name in _THROTTLED if self._throttle_bits & bit),
        )


def _used_by(processes: Sequence[psutil.Process]) -> tuple[int, float]:
    return tree.involuntary_switches(processes), tree.cpu_seconds(processes)


def _busy_seconds() -> float:
    """Core seconds that the machine has not been idle so far; what a hypervisor took away counts as busy."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    virtual = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user and nice already
    return float(sum(times) - idle - virtual)


@cache
def _library_present() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _handle(device: str) -> Any:
    """NVML's handle for ``device``: a number, a name such as ``GPU-5a...``, or nothing, for the first;
    None where there is no such device."""
    try:
        if device.isdigit() or not device:
            return pynvml.nvmlDeviceGetHandleByIndex(int(device or 0))
        return pynvml.nvmlDeviceGetHandleByUUID(device)
    except pynvml.NVMLError:
        return None


def device_of(environment: dict[str, str]) -> Device:
    """The device that a process with this environment uses first."""
    return Device(environment.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "")))
