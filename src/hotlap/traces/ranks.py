"""Compare the ranks of one training run: which one do the others wait for, and for how long?

A collective ends on all ranks together, after the last one has entered it. Ranks that entered earlier spent the
difference inside their communication kernels. So the rank with the shortest communication entered last, and the others
waited for as long as theirs exceeds it. Only communication that no computation hides counts, since the rest costs
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from hotlap.traces.records import Breakdown, DeviceBreakdown, DeviceTime, RankComparison, RankTime

WORTH_A_NAME = 0.02
"""A rank is only said to be waited for when the others wait this share of the step for it. Clocks of devices, and the
order in which ranks enter a collective, make smaller differences on their own."""


class _Rank(NamedTuple):
    rank: int
    path: str
    device: DeviceBreakdown


def compare_ranks(breakdowns: Sequence[Breakdown]) -> RankComparison | None:
    """Compare the ranks among some traces; None where fewer than two ranks of one run are among them.

    Traces belong together when they name different ranks of a run of the same size and mark the same steps. Of several
    such groups the one with most ranks is compared.
    """
    groups = _runs(breakdowns)
    if not groups:
        return None
    (size, steps), ranks = max(groups.items(), key=lambda it: len(it[1]))
    times = [_times(it, steps) for it in ranks]
    exposed = [[time.exposed_communication_nanoseconds for time in column] for column in times]
    least = [min(row) for row in zip(*exposed, strict=True)]
    waiting = [sum(column) - sum(least) for column in exposed]
    rows = tuple(map(_row, ranks, times, waiting))
    last = min(rows, key=lambda it: it.waiting_nanoseconds)
    others = [it.waiting_share for it in rows if it is not last]
    share = sum(others) / len(others)
    clear = share - last.waiting_share >= WORTH_A_NAME
    return RankComparison(
        ranks=rows,
        steps=steps,
        waited_for=last.rank if clear else None,
        waiting_share=share,
        missing_ranks=max(0, size - len(rows)),
    )


def _runs(breakdowns: Sequence[Breakdown]) -> dict[tuple[int, tuple[int, ...]], list[_Rank]]:
    """The traces that belong together, by the run's size and the steps; ranks in order, none of them twice."""
    found: defaultdict[tuple[int, tuple[int, ...]], dict[int, list[_Rank]]] = defaultdict(dict)
    for it in breakdowns:
        facts = it.facts
        device = _communicating_device(it)
        if facts.rank is None or device is None or it.unreliable:
            continue
        steps = tuple(step.number for step in device.steps)
        ranks = found[facts.world_size or 0, steps]
        ranks.setdefault(facts.rank, []).append(_Rank(facts.rank, facts.path, device))
    return {
        run: [members[0] for _, members in sorted(ranks.items())]
        for run, ranks in found.items()
        if len(ranks) > 1 and all(len(members) == 1 for members in ranks.values())
    }


def _communicating_device(breakdown: Breakdown) -> DeviceBreakdown | None:
    """A rank drives one device as a rule; of several, the busiest that communicates."""
    communicating = [it for it in breakdown.devices if it.time.communication_nanoseconds > 0]
    return max(communicating, key=lambda it: it.time.busy_nanoseconds, default=None)


def _times(rank: _Rank, steps: tuple[int, ...]) -> list[DeviceTime]:
    """Break down the device's time in each step, or in its whole window if no steps are marked."""
    if not steps:
        return [rank.device.time]
    return [it.device for it in rank.device.steps if it.device is not None]


def _row(rank: _Rank, times: list[DeviceTime], waiting: int) -> RankTime:
    return RankTime(
        rank=rank.rank,
        path=rank.path,
        device=rank.device.device,
        window_nanoseconds=sum(it.window_nanoseconds for it in times),
        busy_nanoseconds=sum(it.busy_nanoseconds for it in times),
        compute_nanoseconds=sum(it.compute_nanoseconds for it in times),
        communication_nanoseconds=sum(it.communication_nanoseconds for it in times),
        exposed_communication_nanoseconds=sum(it.exposed_communication_nanoseconds for it in times),
        waiting_nanoseconds=waiting,
    )
