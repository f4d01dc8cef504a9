"""The load while a block was timed: processor time of the child and of others, the device's clock, and the energy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import psutil
import pynvml

from hotlap.machine.energy import ProcessorEnergy
from hotlap.records import Block
from hotlap.trial import tree
from hotlap.trial.energy import CountedEnergy, SampledPower
from hotlap.trial.others import busy_seconds

# Bits of NVML's clocks event reasons that mean "slower than it could be" (idle and the user's own settings do not).
_THROTTLED = (
    (pynvml.nvmlClocksEventReasonSwPowerCap, "power cap"),
    (pynvml.nvmlClocksThrottleReasonHwSlowdown, "hardware slowdown"),
    (pynvml.nvmlClocksEventReasonSwThermalSlowdown, "heat"),
    (pynvml.nvmlClocksThrottleReasonHwThermalSlowdown, "heat (hardware)"),
    (pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"),
)


class Device:
    """The NVIDIA devices that a child sees (``visible_devices`` as in CUDA_VISIBLE_DEVICES; empty: all). The clock is
    that of the first, the energy that of the first few. All values are empty without a device, or where its driver does
    not report them.
    """

    def __init__(self, visible_devices: str) -> None:
        self._handles = _handles(visible_devices) if _library_present() else []
        self._handle = self._handles[0] if self._handles else None

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

    def used_bytes(self) -> int | None:
        """Memory of all these devices that is in use now, by whomever."""
        try:
            found = [int(pynvml.nvmlDeviceGetMemoryInfo(it).used) for it in self._handles]
        except pynvml.NVMLError:
            return None
        return sum(found) if found else None

    def energy_joules(self, devices: int) -> float | None:
        """Joules that the first few devices have counted since their driver was loaded."""
        return _sum(pynvml.nvmlDeviceGetTotalEnergyConsumption, self._handles[:devices])

    def power_watts(self, devices: int) -> float | None:
        """The power of the first few devices right now."""
        return _sum(pynvml.nvmlDeviceGetPowerUsage, self._handles[:devices])


@dataclass(frozen=True, slots=True)
class CoresSeen:
    """The use of the cores within ``wall_seconds``: by the watched processes, and by others."""

    wall_seconds: float
    own_seconds: float
    other_load: float
    waited_seconds: float | None


class CoresWatch:
    """Watches how these processes and all others use the cores, from creation until :meth:`stop`."""

    def __init__(self, processes: Sequence[psutil.Process]) -> None:
        self._own_seconds = tree.cpu_seconds(processes)
        self._waits = tree.waited_seconds(processes)
        self._busy_at_first = self._busy_at_last = busy_seconds()
        self._began = self._ended = time.perf_counter()

    def stop(self) -> None:
        """End the measurement; may be called again, which moves its end."""
        self._ended = time.perf_counter()
        self._busy_at_last = busy_seconds()

    def seen(self, processes: Sequence[psutil.Process]) -> CoresSeen:
        """``processes`` are those that are watched, as they are at the end."""
        wall = self._ended - self._began
        own = max(0.0, tree.cpu_seconds(processes) - self._own_seconds)
        others = max(0.0, self._busy_at_last - self._busy_at_first - own)
        waited = _waited_between(self._waits, tree.waited_seconds(processes))
        return CoresSeen(wall, own, others / wall if wall > 0 else 0.0, waited)

    def block_until_now(self, processes: Sequence[psutil.Process]) -> Block:
        """A block without steps, from creation until now; may be called again, which moves its end."""
        self.stop()
        seen = self.seen(processes)
        return Block(
            steps=0,
            samples=0,
            wall_seconds=seen.wall_seconds,
            own_cpu_seconds=seen.own_seconds,
            other_load=seen.other_load,
            waited_seconds=seen.waited_seconds,
        )


class BlockWatch:
    """Watches one block of one child, from its making until :meth:`stop`; ``processes`` are the child's, of which
    ``trainers`` train, each on a device of its own where there are devices."""

    def __init__(
        self,
        processes: Sequence[psutil.Process],
        device: Device,
        *,
        trainers: int = 1,
        processors: ProcessorEnergy | None = None,
    ) -> None:
        self._device = device
        self._trainers = trainers
        self._processors = processors or _processors()
        self._clocks_mhz: list[float] = []
        self._throttle_bits = 0
        self._switches = tree.involuntary_switches(processes)
        self._cores = CoresWatch(processes)
        self._processor_joules = self._processors.joules()
        self._counted, self._sampled = CountedEnergy(), SampledPower()
        self._began = time.perf_counter()
        self._counted.read(self._began, self._device.energy_joules(trainers))

    def look(self) -> None:
        """Sample the device's clock and its energy. Meant to be called now and then while the block runs."""
        self._counted.read(time.perf_counter(), self._device.energy_joules(self._trainers))
        if not self._counted.has_readings:
            self._sampled.read(self._device.power_watts(self._trainers))
        clock = self._device.clock_mhz()
        if clock is not None:
            self._clocks_mhz.append(clock)
            self._throttle_bits |= self._device.throttle_bits()

    def stop(self) -> None:
        """The block has ended; remaining queries may be slow."""
        ended = time.perf_counter()
        self._cores.stop()
        self._counted.read(ended, self._device.energy_joules(self._trainers))
        before, after = self._processor_joules, self._processors.joules()
        self._processor_joules = after - before if before is not None and after is not None else None

    def complete(self, block: Block, processes: Sequence[psutil.Process]) -> Block:
        """The block with what was seen; ``processes`` are the child's at its end. The counters cover the steps that
        were led in with too, and are scaled to the block's own wall time; those of processor time tick in hundredths of
        a second."""
        seen = self._cores.seen(processes)
        switches = tree.involuntary_switches(processes)
        share = min(1.0, block.wall_seconds / seen.wall_seconds) if seen.wall_seconds > 0 else 1.0
        watts = self._counted.watts() if self._counted.has_readings else self._sampled.watts()
        processors = self._processor_joules
        return msgspec.structs.replace(
            block,
            own_cpu_seconds=seen.own_seconds * share,
            other_load=seen.other_load,
            waited_seconds=seen.waited_seconds * share if seen.waited_seconds is not None else None,
            involuntary_switches=max(block.involuntary_switches, switches - self._switches),
            device_clock_mhz=sum(self._clocks_mhz) / len(self._clocks_mhz) if self._clocks_mhz else None,
            throttled=", ".join(name for bit, name in _THROTTLED if self._throttle_bits & bit),
            device_energy_joules=watts * block.wall_seconds if watts is not None else None,
            device_power_sampled=watts is not None and not self._counted.has_readings,
            processor_energy_joules=processors * share if processors is not None else None,
        )


def _waited_between(before: tree.Waits | None, after: tree.Waits | None) -> float | None:
    """What the threads that are there now have waited since; one that was not there before, since its start."""
    if before is None or after is None:
        return None
    return sum(max(0.0, seconds - before.get(thread, 0.0)) for thread, seconds in after.items())


@cache
def _processors() -> ProcessorEnergy:
    return ProcessorEnergy()


def _sum(question: Callable[[Any], int], handles: Sequence[Any]) -> float | None:
    """The sum of the devices' values in thousandths; None without devices or where one does not answer."""
    try:
        return sum(question(it) for it in handles) / 1000 if handles else None
    except pynvml.NVMLError:
        return None


@cache
def _library_present() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _handles(visible_devices: str) -> list[Any]:
    """NVML's handles of the visible devices; as in CUDA, the first wrong one hides all that follow."""
    named = (
        [it.strip() for it in visible_devices.split(",")] if visible_devices else [str(it) for it in range(_count())]
    )
    handles: list[Any] = []
    for name in named:
        handle = _handle(name)
        if handle is None:
            break
        handles.append(handle)
    return handles


def _count() -> int:
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0


def _handle(device: str) -> Any:
    """NVML's handle for ``device``: a number, or a name such as ``GPU-5a...``; None where there is no such device."""
    try:
        if device.isdigit():
            return pynvml.nvmlDeviceGetHandleByIndex(int(device))
        return pynvml.nvmlDeviceGetHandleByUUID(device)
    except pynvml.NVMLError:
        return None


def device_of(environment: dict[str, str]) -> Device:
    """The devices that a process with this environment sees."""
    return Device(environment.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "")))
