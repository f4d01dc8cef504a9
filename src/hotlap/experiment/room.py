"""How many arms of a replicate a device has room for at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.records import Accelerator, Machine, Run


def fitting_on_device(machine: Machine, baseline: Run, *, most: int, memory_share: float) -> tuple[int, int]:
    """How many arms like the baseline fit into a share of the fullest device, and how many bytes one needs there.

    ``most`` where the script uses no device, or its memory is unknown.
    """
    accelerator = _fullest(machine.accelerators)
    if not baseline.device_peak_bytes or accelerator is None or not accelerator.memory_bytes:
        return most, 0
    free_bytes = accelerator.memory_bytes - accelerator.used_bytes
    own_bytes = max(baseline.device_peak_bytes, baseline.device_footprint_bytes - accelerator.used_bytes)
    return int(memory_share * free_bytes / own_bytes), own_bytes


def _fullest(accelerators: Sequence[Accelerator]) -> Accelerator | None:
    return min(accelerators, key=lambda it: it.memory_bytes - it.used_bytes, default=None)
