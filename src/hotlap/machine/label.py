"""A machine in one line."""

from __future__ import annotations

from collections import Counter

from hotlap.records import Machine


def machine_label(machine: Machine) -> str:
    """``AMD EPYC 7742, 16 cores, 2x NVIDIA A10``: measurements with the same label are from the same kind of machine.
    Empty where nothing is known of it."""
    if not machine.processor and not machine.accelerators:
        return ""
    devices = Counter(it.name for it in machine.accelerators)
    parts = [machine.processor, f"{machine.cores} core{'s' if machine.cores != 1 else ''}"]
    parts += [name if count == 1 else f"{count}x {name}" for name, count in devices.items()]
    return ", ".join(filter(None, parts))
