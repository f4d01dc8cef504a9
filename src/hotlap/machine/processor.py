"""The processor, and how many of its cores this process may use."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from hotlap.machine import control_groups


def name(root: Path = Path("/")) -> str:
    """The processor's name as it reports it, else its architecture (``aarch64``)."""
    described = _cpuinfo(root)
    for key in ("model name", "cpu model", "Model"):
        if described.get(key):
            return described[key]
    return platform.processor() or platform.machine()


def flags(root: Path = Path("/")) -> frozenset[str]:
    """The instruction sets that the first processor lists (x86 calls them flags, Arm features)."""
    described = _cpuinfo(root)
    return frozenset((described.get("flags") or described.get("Features") or "").split())


def claimed_dtypes(instruction_sets: frozenset[str]) -> tuple[str, ...]:
    """The dtypes for whose products the instruction sets hold instructions; a claim, to be confirmed by measurement.

    Source: Intel's and Arm's manuals, as the kernel abbreviates them. Instructions that only convert are not listed.
    """
    sixteen_bit = {
        "bfloat16": {"avx512_bf16", "amx_bf16", "bf16", "svebf16"},
        "float16": {"avx512_fp16", "amx_fp16", "asimdhp", "fphp"},
    }
    claimed = [dtype for dtype, evidence in sixteen_bit.items() if evidence & instruction_sets]
    return ("float32", *claimed)


def visible_cores() -> tuple[int, ...]:
    """The numbers of the logical cores that this process may be scheduled on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cores_available(root: Path = Path("/"), visible: tuple[int, ...] | None = None) -> int:
    """The cores that this process can keep busy: the visible ones, or fewer where a quota allows less.

    A fraction is rounded down (but never to 0): with one thread more than the quota the kernel stops all of them for
    the rest of each period.
    """
    count = len(visible_cores() if visible is None else visible)
    quota = control_groups.limits(root).cores
    return max(1, count if quota is None else min(count, int(quota)))


def physical_cores(root: Path = Path("/"), visible: tuple[int, ...] | None = None) -> int:
    """The number of physical cores behind the visible logical ones, at most the available ones.

    Where the kernel reports no topology, every logical core counts as a physical one.
    """
    numbers = visible_cores() if visible is None else visible
    behind = {_physical_core(root, number) for number in numbers}
    return max(1, min(len(behind), cores_available(root, numbers)))


def busy_seconds(times: Any) -> float:
    """Seconds not idle in one of psutil's ``scputimes``; guests are in user and nice already, and count once."""
    idle = times.idle + getattr(times, "iowait", 0.0)
    virtual = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - virtual)


def _physical_core(root: Path, number: int) -> tuple[str, str]:
    topology = root / f"sys/devices/system/cpu/cpu{number}/topology"
    try:
        package = (topology / "physical_package_id").read_text(encoding="ascii").strip()
        core = (topology / "core_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ("unknown", str(number))
    return (package, core)


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's lines of ``/proc/cpuinfo``; on Arm all of it, since the model is at the end."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    described: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            described.setdefault(key.strip(), value.strip())
    return described
