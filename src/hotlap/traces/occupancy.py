"""How well kernels fill their device, as the profiler wrote it with each launch: occupancy, grid, registers, memory.

Kineto computes these from the launch alone. *Blocks per SM* and *warps per SM* divide the whole grid by the number of
multiprocessors, so less than one block per multiprocessor leaves some without any. *Est. achieved occupancy* is the
number of resident warps over the largest possible one, where as many blocks are resident as registers and shared memory
allow, and at most those of the grid; it does not account for the time for which they are resident.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hotlap.traces.dialects import Kind
from hotlap.traces.records import KernelRow
from hotlap.traces.timeline import NONE, KernelConfiguration, Selection, Timeline

FEW_BLOCKS = 0.5
"""Blocks per multiprocessor. A grid with fewer leaves more than half of the multiprocessors without work."""

_MOST = 1e9
"""Of any of the figures; what is above is a defect of the trace."""


def with_configurations(timeline: Timeline, selected: Selection, rows: Iterable[KernelRow]) -> tuple[KernelRow, ...]:
    """The rows with how their kernels were launched, where that was recorded and read. Means are weighted by time."""
    spent = _spent(timeline, selected)
    return tuple(_with(it, spent[it.name]) if it.name in spent and it.kind == "kernel" else it for it in rows)


def _spent(timeline: Timeline, selected: Selection) -> Mapping[str, Counter[KernelConfiguration]]:
    """The time of each kernel by configuration."""
    device = timeline.device
    found: defaultdict[str, Counter[KernelConfiguration]] = defaultdict(Counter)
    if not timeline.configurations:
        return found
    sums: Counter[tuple[int, int]] = Counter()
    for it in selected:
        if device.kind[it] == Kind.KERNEL and device.configuration[it] != NONE:
            sums[device.name[it], device.configuration[it]] += device.end[it] - device.start[it]
    for (name, configuration), nanoseconds in sums.items():
        found[device.names[name]][timeline.configurations[configuration]] += nanoseconds
    return found


def _with(row: KernelRow, spent: Mapping[KernelConfiguration, int]) -> KernelRow:
    blocks = [(_sensible(it.blocks_per_multiprocessor), time) for it, time in spent.items()]
    percent = _mean([(_occupancy(it), time) for it, time in spent.items()])
    return msgspec.structs.replace(
        row,
        occupancy=None if percent is None else percent / 100,
        blocks_per_multiprocessor=_mean(blocks),
        warps_per_multiprocessor=_mean([(_sensible(it.warps_per_multiprocessor), time) for it, time in spent.items()]),
        registers_per_thread=_most([it.registers_per_thread for it in spent]),
        shared_memory_bytes=_most([it.shared_memory_bytes for it in spent]),
        few_blocks_nanoseconds=sum(time for it, time in blocks if it is not None and it < FEW_BLOCKS),
        without_block_nanoseconds=round(
            sum(time * (1 - it) for it, time in blocks if it is not None and it < FEW_BLOCKS)
        ),
    )


def _occupancy(it: KernelConfiguration) -> float | None:
    """Kineto writes 0 also where it could not compute the occupancy, as for kernels with more shared memory than a
    block gets by default. A grid with a warp for each multiprocessor has more than 1 %."""
    percent, warps = it.occupancy_percent, it.warps_per_multiprocessor
    if percent is None or not 0 <= percent <= 100:
        return None
    return None if percent == 0 and (warps is None or warps >= 1) else percent


def _sensible(figure: float | None) -> float | None:
    return figure if figure is not None and 0 <= figure <= _MOST else None


def _most(figures: Sequence[float | None]) -> int | None:
    known = [it for it in map(_sensible, figures) if it is not None]
    return round(max(known)) if known else None


def _mean(figures: Sequence[tuple[float | None, int]]) -> float | None:
    """Weighted by time, where anything is known."""
    known = [(it, time) for it, time in figures if it is not None]
    whole = sum(time for _, time in known)
    if not whole:
        return known[0][0] if known else None
    return sum(it * time for it, time in known) / whole
