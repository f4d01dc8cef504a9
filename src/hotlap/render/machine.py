"""A machine in words: its hardware, and its measured rates."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.records import Machine
from hotlap.render import text


def machine_line(machine: Machine) -> str:
    """The machine in one line: processor, cores, memory, accelerators, and the most important versions."""
    parts = [text.one_line(machine.processor) or "unknown processor", text.count(machine.cores, "core")]
    if machine.memory_bytes:
        parts.append(text.size(machine.memory_bytes))
    parts += [f"{text.one_line(it.name)} ({text.size(it.memory_bytes)})" for it in machine.accelerators]
    versions = dict(machine.library_versions)
    parts += [f"{name} {text.one_line(versions[name])}" for name in ("torch", "cuda", "hip") if name in versions]
    if machine.python_version:
        parts.append(f"Python {text.one_line(machine.python_version)}")
    return ", ".join(parts)


def ceiling_rates(machine: Machine) -> Iterator[tuple[str, str]]:
    """The measured rates of this machine by name."""
    ceilings = machine.ceilings
    for key, flops in ceilings.matmul_flops_per_second:
        device, _, dtype = text.one_line(key).partition(":")
        yield f"matmul on {device} in {dtype}", text.rate(flops, "FLOP")
    for name, bytes_per_second in (
        ("memory", ceilings.memory_bytes_per_second),
        ("host to device, pageable", ceilings.host_to_device_pageable_bytes_per_second),
        ("host to device, pinned", ceilings.host_to_device_pinned_bytes_per_second),
    ):
        if bytes_per_second is not None:
            yield name, text.rate(bytes_per_second, "B")
