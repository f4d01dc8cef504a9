"""Which rank enters shared collectives last, and how long the other ranks wait for it.

:mod:`.ranks` compares how long ranks are in communication. Here each call is found on every rank, by its process group
and sequence number, or by its order within the step where collectives are not numbered. The rank whose kernel starts
last arrived last; the kernels of the others ran that much longer. Clocks of different machines differ, so they are
aligned by the ends of collectives, which all ranks reach together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from heapq import nlargest
from statistics import median
from typing import NamedTuple, TypeAlias

from hotlap.traces.collective_records import CollectiveComparison, LateArrival, RankArrival, SharedCollectiveRow
from hotlap.traces.collectives import POINT_TO_POINT, SYNCHRONISING, Alike, CollectiveCall, alike
from hotlap.traces.records import TraceFacts

_LATEST_KEPT = 20
_MOST_ROWS = 100

_Key: TypeAlias = tuple[object, ...]
_Found: TypeAlias = dict[int, CollectiveCall]
"""One collective call, matched across ranks."""


class CollectiveLog(NamedTuple):
    """The collectives of one trace."""

    facts: TraceFacts
    calls: tuple[CollectiveCall, ...]


def compare_collectives(logs: Sequence[CollectiveLog]) -> CollectiveComparison | None:
    """Match the collectives of some traces; None where no two ranks of one run have any in common."""
    ranks = _one_run(logs)
    found: defaultdict[_Key, _Found] = defaultdict(dict)
    for rank, log in ranks.items():
        for key, call in _keyed(log.calls):
            found[key][rank] = call
    shared = [it for it in _of_equal_counts(found) if len(it) > 1]
    if not shared:
        return None
    offsets = _clock_offsets(shared)
    waits = [_waits(it, offsets) for it in shared]
    return CollectiveComparison(
        ranks=tuple(_arrivals(ranks, shared, waits, offsets)),
        matched=len(shared),
        unmatched=len(found) - len(shared),
        latest=_latest(shared, waits),
        rows=_rows(shared, waits),
    )


def _one_run(logs: Sequence[CollectiveLog]) -> dict[int, CollectiveLog]:
    """Select the traces of different ranks of one run; of several runs, the one with most ranks."""
    runs: defaultdict[int, dict[int, list[CollectiveLog]]] = defaultdict(dict)
    for it in logs:
        if it.facts.rank is not None and it.calls:
            runs[it.facts.world_size or 0].setdefault(it.facts.rank, []).append(it)
    clear = [ranks for ranks in runs.values() if all(len(of) == 1 for of in ranks.values())]
    most = max(clear, key=len, default={})
    return {rank: of[0] for rank, of in sorted(most.items())}


def _keyed(calls: Sequence[CollectiveCall]) -> Iterator[tuple[_Key, CollectiveCall]]:
    """Key each call by what identifies it on all ranks; the last part numbers calls with equal keys."""
    seen: Counter[_Key] = Counter()
    for it in calls:
        if it.kind == POINT_TO_POINT:
            continue
        message = it.message
        key: _Key
        if message is not None and message.sequence is not None:
            key = ("numbered", message.group, message.ranks, it.kind, message.sequence)
        elif message is not None:
            key = ("ordered", message.group, message.ranks, it.kind, it.step)
        else:
            key = ("ordered", "", "", it.kind, it.step)
        seen[key] += 1
        yield (*key, seen[key]), it


def _of_equal_counts(found: dict[_Key, _Found]) -> Iterator[_Found]:
    """Drop steps whose calls cannot be matched by their order.

    If ranks ran different numbers of an unnumbered collective in a step, the order does not show which calls match.
    """
    counts: defaultdict[_Key, Counter[int]] = defaultdict(Counter)
    for key, ranks in found.items():
        counts[key[:-1]].update(ranks.keys())
    for key, ranks in found.items():
        if key[0] == "numbered" or len(set(counts[key[:-1]].values())) == 1:
            yield ranks


def _clock_offsets(shared: Sequence[_Found]) -> dict[int, int]:
    """Estimate each rank's clock offset from the first rank that it shares collectives with: the median difference of
    their ends."""
    differences: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for calls in shared:
        if next(iter(calls.values())).kind in SYNCHRONISING:
            first, *others = sorted(calls)
            for it in others:
                differences[first, it].append(calls[it].end - calls[first].end)
    between = {pair: round(median(values)) for pair, values in differences.items()}
    offsets: dict[int, int] = {}
    for start in sorted({rank for calls in shared for rank in calls}):
        if start in offsets:
            continue
        offsets[start] = 0
        waiting = [start]
        while waiting:
            here = waiting.pop()
            for (one, other), difference in between.items():
                if one == here and other not in offsets:
                    offsets[other] = offsets[here] + difference
                    waiting.append(other)
                elif other == here and one not in offsets:
                    offsets[one] = offsets[here] - difference
                    waiting.append(one)
    return offsets


class _Waits(NamedTuple):
    """Find which rank entered a call last, and how long each other rank waited."""

    last: int
    nanoseconds: dict[int, int]

    @property
    def mean(self) -> int:
        return round(sum(self.nanoseconds.values()) / len(self.nanoseconds))

    @property
    def longest(self) -> int:
        return max(self.nanoseconds.values())


def _waits(calls: _Found, offsets: dict[int, int]) -> _Waits:
    """No rank waits longer than its kernel ran."""
    starts = {rank: it.start - offsets[rank] for rank, it in calls.items()}
    last = max(starts, key=lambda it: (starts[it], -it))
    return _Waits(
        last, {rank: min(starts[last] - starts[rank], it.end - it.start) for rank, it in calls.items() if rank != last}
    )


def _arrivals(
    ranks: dict[int, CollectiveLog], shared: Sequence[_Found], waits: Sequence[_Waits], offsets: dict[int, int]
) -> Iterator[RankArrival]:
    calls, last, waited_for, waiting = (Counter[int]() for _ in range(4))
    for found, waited in zip(shared, waits, strict=True):
        calls.update(found.keys())
        last[waited.last] += 1
        waited_for[waited.last] += waited.mean
        waiting.update(waited.nanoseconds)
    for rank in sorted(calls):
        yield RankArrival(
            rank=rank,
            path=ranks[rank].facts.path,
            collectives=calls[rank],
            times_last=last[rank],
            waited_for_nanoseconds=waited_for[rank],
            waiting_nanoseconds=waiting[rank],
            clock_offset_nanoseconds=offsets[rank],
        )


def _latest(shared: Sequence[_Found], waits: Sequence[_Waits]) -> tuple[LateArrival, ...]:
    """The calls that one rank entered latest; equally late ones in reverse order of the trace."""
    ranked = nlargest(_LATEST_KEPT, range(len(shared)), key=lambda it: (waits[it].longest, it))
    return tuple(_late(shared[it], waits[it]) for it in ranked if waits[it].longest > 0)


def _late(calls: _Found, waits: _Waits) -> LateArrival:
    call = calls[waits.last]
    return LateArrival(
        rank=waits.last,
        collective=call.kind,
        group=call.message.group if call.message else "",
        nanoseconds=waits.longest,
        step=call.step,
        sequence=call.message.sequence if call.message else None,
    )


def _rows(shared: Sequence[_Found], waits: Sequence[_Waits]) -> tuple[SharedCollectiveRow, ...]:
    transfers: defaultdict[Alike, list[int]] = defaultdict(list)
    ranks: defaultdict[Alike, set[int]] = defaultdict(set)
    waited: Counter[Alike] = Counter()
    for calls, it in zip(shared, waits, strict=True):
        key = alike(next(iter(calls.values())))
        transfers[key].append(min(call.end - call.start for call in calls.values()))
        ranks[key].update(calls)
        waited[key] += it.mean
    rows = [
        SharedCollectiveRow(
            collective=key.collective,
            group=key.group,
            group_size=key.group_size,
            dtype=key.dtype,
            message_bytes=key.message_bytes,
            calls=len(lengths),
            transfer_nanoseconds=sum(lengths),
            waiting_nanoseconds=waited[key],
            bus_bytes_per_second=key.bus_rate(len(lengths), sum(lengths)),
            typical_nanoseconds=round(median(lengths)),
            shortest_nanoseconds=min(lengths),
            ranks=tuple(sorted(ranks[key])),
        )
        for key, lengths in transfers.items()
    ]
    return tuple(sorted(rows, key=lambda it: -(it.transfer_nanoseconds + it.waiting_nanoseconds))[:_MOST_ROWS])
