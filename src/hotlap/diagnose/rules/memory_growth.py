"""Memory grows with every step.

## What it is
After warm-up a training step should free all memory that it allocates. Here every step leaves something behind: a
tensor kept in a list, or a loss kept with its autograd graph, and so with every activation of its step.

## Why it is slow
The run ends with an out-of-memory error, possibly hours after its start. Until then the allocator has less and less
free memory, and on the host the system begins to swap.

## How to see it
Memory at the end of each observed step: the median slope over all pairs of steps, after warm-up. It must rise by about
as much in every third of the steps, so that a cache that fills once, or memory that settles, is not reported as a leak.
Variables of the script that hold more tensors with every step are named with their line. A variable that the script
empties again (judged by the bytecode of the functions that run) is not a leak: it is named only if it keeps graphs.

## What to do
Keep numbers, not tensors: `losses.append(loss.detach())`, or `loss.item()` occasionally. If tensors must be kept,
detach them and move them to the host.

## When it is fine
If the list is emptied before memory is full, for example at the end of a short epoch; a replay buffer with a maximum
size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, levers_for, name, place, size
from hotlap.evidence import MemoryHolder, MemoryTimeline, RunEvidence
from hotlap.measure.trend import settled_growth
from hotlap.records import CallSite, Finding, Machine

title = "Memory grows with every step"
group: Group = "memory"

_DEVICE_GROWTH_BYTES = 1 << 20
_HOST_GROWTH_BYTES = 16 << 20
_GROWTH_SHARE = 0.01
_STEADY_TENSORS_PER_STEP = 0.5
_HOLDERS_SHOWN = 3


class _Growth(NamedTuple):
    """One kind of memory that grows: from ``first`` to ``last`` bytes over ``steps`` steps."""

    where: str
    bytes_per_step: float
    first: int
    last: int
    steps: int
    limit_bytes: int

    @property
    def full_after_steps(self) -> float | None:
        left = self.limit_bytes - self.last
        return left / self.bytes_per_step if self.limit_bytes and left > 0 else None


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding, about the device's memory before the host's; the other is evidence."""
    memory = profile.evidence.memory
    holders = sorted(memory.holders, key=lambda it: (it.emptied, not it.holds_graph, -it.tensors_per_step, -it.bytes))
    keeper = next((it for it in holders if _surely_grows(it, profile.evidence.observed_steps)), None)
    growing = list(_growing(profile, keeps_graphs=keeper is not None))
    # The device's allocator counts to the byte. A process's memory may hide what a small model leaves behind.
    unseen = keeper if not memory.allocated_bytes and not growing else None
    if not growing and unseen is None:
        return
    if holders and all(it.emptied and not it.holds_graph for it in holders):
        return  # a list of an epoch's results ends with the epoch
    emptied = bool(holders) and all(it.emptied for it in holders)
    yield Finding(
        rule="memory-growth",
        kind="risk",
        share=exactly(0.0),
        title=_title(growing, unseen),
        evidence=(
            *(_grown(it, until_full=not emptied) for it in growing),
            *map(_held, holders[:_HOLDERS_SHOWN]),
        ),
        remedy=_remedy(holders),
        site=holders[0].site if holders else None,
        levers=levers_for("memory-growth"),
    )


def _title(growing: Sequence[_Growth], unseen: MemoryHolder | None) -> str:
    if unseen is not None:
        return f"`{name(unseen.name)}` keeps the graphs of {unseen.tensors} tensors, and of more with every step."
    return f"{growing[0].where} memory grows by {size(growing[0].bytes_per_step)} with every step."


def _growing(profile: Profile, *, keeps_graphs: bool) -> Iterator[_Growth]:
    memory = profile.evidence.memory
    columns = (
        ("Device", memory.allocated_bytes, memory.limit_bytes, _DEVICE_GROWTH_BYTES),
        ("Host", memory.host_bytes, profile.machine.memory_bytes, _HOST_GROWTH_BYTES),
    )
    for where, column, limit_bytes, least_growth in columns:
        found = _growth(where, column, limit_bytes)
        # A kept graph proves that memory leaks, however little it is so far.
        enough = 0 if keeps_graphs else max(least_growth, _GROWTH_SHARE * column[0] if column else 0)
        if found is not None and found.bytes_per_step * found.steps >= enough:
            yield found


def _growth(where: str, column: Sequence[int], limit_bytes: int) -> _Growth | None:
    """Return how the column rises after its first quarter.

    In the first quarter, optimizers and caches allocate their share.
    """
    settled = column[len(column) // 4 :]
    slope = settled_growth(column)
    return _Growth(where, slope, settled[0], settled[-1], len(settled) - 1, limit_bytes) if slope > 0 else None


def _surely_grows(holder: MemoryHolder, observed_steps: int) -> bool:
    steady = holder.tensors_per_step >= _STEADY_TENSORS_PER_STEP
    return holder.holds_graph and steady and holder.tensors >= max(8, observed_steps // 2)


def _grown(it: _Growth, *, until_full: bool) -> str:
    text = f"{it.where} memory went from {size(it.first)} to {size(it.last)} in {it.steps} steps after warm-up"
    remaining = it.full_after_steps if until_full else None
    return text if remaining is None else f"{text}; at this rate {size(it.limit_bytes)} are full {_after(remaining)}"


def _after(steps: float) -> str:
    """Round to two significant digits: more would overstate the precision."""
    return f"after about {float(f'{max(1.0, steps):.2g}'):,.0f} more steps"


def _held(it: MemoryHolder) -> str:
    graph = ", each with the graph of its computation" if it.holds_graph else ""
    return (
        f"`{name(it.name)}` ({place(it.site)}) holds {count(it.tensors, 'tensor')} ({size(it.bytes)}){graph}; "
        f"{it.tensors_per_step:.2g} more with every step{', until it is emptied' if it.emptied else ''}"
    )


def _remedy(holders: Sequence[MemoryHolder]) -> str:
    if not holders:
        return (
            "Find what is kept across steps: a list, a cache, a tensor with its graph. Keep `tensor.detach()` or "
            "a number of it; torch.cuda.memory's snapshot shows where device memory was taken."
        )
    variable = f"`{name(holders[0].name)}`"
    if holders[0].holds_graph:
        return f"Keep `.detach()` of what goes into {variable}, or `.item()` occasionally: then the graph is freed."
    return f"Keep numbers instead of tensors in {variable}, or empty it regularly; its memory is never freed."


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------

_MIB = 1 << 20
_GIB = 1 << 30


def _profile(memory: MemoryTimeline, steps: int = 60) -> Profile:
    return Profile(machine=Machine(memory_bytes=16 * _GIB), evidence=RunEvidence(observed_steps=steps, memory=memory))


def _kept_losses(holds_graph: bool, tensors: int = 60, *, emptied: bool = False) -> MemoryHolder:
    return MemoryHolder(
        name="losses",
        tensors=tensors,
        bytes=512 * tensors,
        tensors_per_step=1.0,
        holds_graph=holds_graph,
        emptied=emptied,
        site=CallSite(role="step", file="train.py", line=31),
    )


fires = {
    "the losses are kept with their graphs on a device": _profile(
        MemoryTimeline(
            allocated_bytes=tuple(_GIB + 3 * _MIB * step for step in range(60)),
            limit_bytes=24 * _GIB,
            holders=(_kept_losses(holds_graph=True),),
        )
    ),
    "the host's memory grows and the holder is unknown": _profile(
        MemoryTimeline(host_bytes=tuple(_GIB + _MIB * step + _MIB * (step % 3) for step in range(60)))
    ),
    "a small model's graphs are kept on the CPU": _profile(
        MemoryTimeline(
            host_bytes=tuple(_GIB // 2 + 40_960 * step for step in range(60)), holders=(_kept_losses(holds_graph=True),)
        )
    ),
    "graphs that are kept until the epoch ends": _profile(
        MemoryTimeline(
            host_bytes=tuple(_GIB + _MIB * step for step in range(60)),
            holders=(_kept_losses(holds_graph=True, emptied=True),),
        )
    ),
    "graphs so small that the process's memory hides them": _profile(
        MemoryTimeline(host_bytes=(_GIB // 2,) * 60, holders=(_kept_losses(holds_graph=True),))
    ),
}

silent = {
    "nothing was measured": Profile(),
    "outputs are kept until the epoch ends": _profile(
        MemoryTimeline(
            host_bytes=tuple(_GIB + _MIB * step for step in range(60)),
            holders=(_kept_losses(holds_graph=False, emptied=True),),
        )
    ),
    "a cache fills and settles": _profile(
        MemoryTimeline(allocated_bytes=tuple(_GIB + int(200 * _MIB * (1 - 0.9**step)) for step in range(60)))
    ),
    "memory jumps once, at an evaluation": _profile(
        MemoryTimeline(host_bytes=tuple(_GIB + 500 * _MIB * (step > 35) for step in range(60)))
    ),
    "batches of many lengths": _profile(
        MemoryTimeline(allocated_bytes=tuple(_GIB + 40 * _MIB * (step * 7 % 11) for step in range(60)))
    ),
    "detached losses are kept, some bytes each": _profile(
        MemoryTimeline(
            allocated_bytes=tuple(_GIB + 512 * step for step in range(60)), holders=(_kept_losses(holds_graph=False),)
        )
    ),
    "graphs are kept, but the device's memory stays level": _profile(
        MemoryTimeline(allocated_bytes=(_GIB,) * 60, holders=(_kept_losses(holds_graph=True),))
    ),
    "a few graphs, one for each epoch": _profile(
        MemoryTimeline(host_bytes=(_GIB // 2,) * 60, holders=(_kept_losses(holds_graph=True, tensors=7),))
    ),
}
