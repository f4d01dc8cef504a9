"""How full the memory is that a script trains in. Not a rule itself."""

from __future__ import annotations

from typing import NamedTuple

from hotlap.diagnose.profile import Profile
from hotlap.levers.support.situations import accelerator


class MemoryUse(NamedTuple):
    """The most bytes in use at once, of how many there are, and whose they are (``NVIDIA L4``, ``the machine``)."""

    peak_bytes: int
    limit_bytes: int
    owner: str

    @property
    def share(self) -> float:
        return self.peak_bytes / self.limit_bytes


def device_memory(profile: Profile) -> MemoryUse | None:
    """The training device's memory; None where the script trains on the CPU, or where peak or limit is not known.

    The peak is that of live tensors, not of the allocator's cache, which may take all there is.
    """
    if not profile.on_accelerator:
        return None
    device = accelerator(profile.situation)
    peak = max(profile.evidence.memory.peak_allocated_bytes, profile.device_peak_bytes)
    limit = profile.evidence.memory.limit_bytes or (device.memory_bytes if device else 0)
    if peak <= 0 or limit <= 0:
        return None
    return MemoryUse(peak, limit, device.name if device and device.name else "the device")


def host_memory(profile: Profile) -> MemoryUse | None:
    """The machine's own memory (its control group's limit counts), used by all processes of the launch together."""
    peak, limit = profile.host_peak_bytes, profile.machine.memory_bytes
    return MemoryUse(peak, limit, "the machine") if peak > 0 and limit > 0 else None
