"""How full the memory is in which a script trains. Not a rule itself."""

from __future__ import annotations

from typing import NamedTuple

from hotlap.diagnose.profile import Profile
from hotlap.levers.support.situations import accelerator


class MemoryUse(NamedTuple):
    """Peak bytes in use, the limit, and the memory's owner (``NVIDIA L4``, ``the machine``)."""

    peak_bytes: int
    limit_bytes: int
    owner: str

    @property
    def share(self) -> float:
        return self.peak_bytes / self.limit_bytes


def device_memory(profile: Profile) -> MemoryUse | None:
    """Return the training device's memory; None on the CPU or if peak or limit is unknown.

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
    """Return the machine's own memory, as used by all processes of the run together.

    The limit of the control group counts.
    """
    peak, limit = profile.host_peak_bytes, profile.machine.memory_bytes
    return MemoryUse(peak, limit, "the machine") if peak > 0 and limit > 0 else None
