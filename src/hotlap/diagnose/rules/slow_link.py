"""A link between ranks is slower than the others, or than this machine's links are.

## What it is
A collective takes several times as long as the same collective takes for its size between idle processes of this
machine, or reaches a fraction of the bandwidth that other groups of ranks reach with the same collective.

## Why it is slow
In a collective all messages go at the pace of the slowest link: one that is misconfigured, shared or broken slows down
every rank, and adding ranks makes it worse.

## How to see it
In the ranks' traces: the shortest time that a call took on any rank, which is that without waiting for a rank that
arrives late. Of all calls of one size not even the fastest may be near what is expected. It is compared with the
latency and bandwidth that `hotlap doctor --processes N` measures, and between process groups. The finding names the
collective, its size and the ranks.

## What to do
Measure it by itself: `hotlap doctor --processes N`. Look at which way the data takes (`NCCL_DEBUG=INFO` names the
transport; `nvidia-smi topo -m` the links), and at the network interface that was chosen (`NCCL_SOCKET_IFNAME`,
`GLOO_SOCKET_IFNAME`). See whether other programs use the link. On processors, see whether the threads that communicate
have a core: more processes and threads than cores slow exchanging down as well.

## When it is fine
If groups exchange over different links by design, such as within a node and between nodes, and the slow one carries
what can wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import msgspec

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rank_traces import rank_trace
from hotlap.diagnose.shares import MATERIAL, at_most
from hotlap.diagnose.wording import count, duration, levers_for, percent, size
from hotlap.records import CollectiveRate, Estimate, Finding, ScriptFacts
from hotlap.traces.collective_records import CollectiveComparison, SharedCollectiveRow

title = "A link between ranks is slower than it should be"
group: Group = "distributed"

_MANY_TIMES = 4.0
"""A collective that takes so many times as long as expected is slow. Next to computing on the same cores it takes
longer than between idle processes, too."""

_WHEN_BUSY = 20.0
"""The same for gloo where other programs kept the cores busy."""

_FEWEST_CALLS = 3
_NANOSECONDS = 1e-9
_LEAST_BYTES = 1 << 16
"""Smaller messages take as long as their latency, which varies."""


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a finding for the collective that loses most, compared with this machine's links or with other groups."""
    found = profile.collectives
    if found is None:
        return
    # Gloo needs the cores that others kept busy.
    is_busy = not profile.on_accelerator and profile.was_disturbed(("profile",))
    many = _WHEN_BUSY if is_busy else _MANY_TIMES
    slow = [(row, expected, "measured") for row, expected in _slower_than_measured(profile, found, many)]
    slow += [(row, expected, "other groups") for row, expected in _slower_than_others(found, many)]
    ranked = sorted(slow, key=lambda it: -_lost(it[0], it[1]))
    for row, expected, by in ranked[:1]:
        share = _share(profile, row, expected)
        if share.high >= MATERIAL:
            yield _finding(row, expected, share, by)


def _slower_than_measured(
    profile: Profile, found: CollectiveComparison, many: float
) -> Iterator[tuple[SharedCollectiveRow, float]]:
    """Rows with the seconds that the fit for as many processes of this machine expects."""
    for row in found.rows:
        ranks = row.group_size or len(row.ranks)
        rate = next((it for it in profile.measured_rates if (it.name, it.processes) == (row.collective, ranks)), None)
        if rate is not None and _counts(row) and _is_slow(row, _expected(rate, row), many):
            yield row, _expected(rate, row)


def _expected(rate: CollectiveRate, row: SharedCollectiveRow) -> float:
    return rate.latency_seconds + row.message_bytes / rate.bytes_per_second


def _slower_than_others(found: CollectiveComparison, many: float) -> Iterator[tuple[SharedCollectiveRow, float]]:
    """Rows with the seconds that the median bandwidth of other groups of as many ranks gives."""
    for row in found.rows:
        others = [
            it.bus_bytes_per_second
            for it in found.rows
            if it.group != row.group
            and (it.collective, it.group_size) == (row.collective, row.group_size)
            and it.bus_bytes_per_second
            and _counts(it)
        ]
        if not others or not row.bus_bytes_per_second or not _counts(row):
            continue
        expected = _typical(row) * row.bus_bytes_per_second / median(others)
        if _is_slow(row, expected, many):
            yield row, expected


def _counts(row: SharedCollectiveRow) -> bool:
    return row.calls >= _FEWEST_CALLS and row.message_bytes >= _LEAST_BYTES


def _is_slow(row: SharedCollectiveRow, expected: float, many: float) -> bool:
    """Whether no call was nearly as fast as expected: what only some calls take, other programs may have caused."""
    return row.shortest_nanoseconds * _NANOSECONDS > many * expected


def _typical(row: SharedCollectiveRow) -> float:
    return row.typical_nanoseconds * _NANOSECONDS


def _lost(row: SharedCollectiveRow, expected: float) -> float:
    """The seconds of all calls beyond what was expected."""
    return max(0.0, row.transfer_nanoseconds * _NANOSECONDS - row.calls * expected)


def _share(profile: Profile, row: SharedCollectiveRow, expected: float) -> Estimate:
    """At most this: part of it may be hidden by computing."""
    steps = max((sum(it.nanoseconds for it in one.steps) for one in profile.breakdowns), default=0) * _NANOSECONDS
    return at_most(min(1.0, _lost(row, expected) / steps) if steps else 0.0)


def _finding(row: SharedCollectiveRow, expected: float, share: Estimate, by: str) -> Finding:
    times, where = _typical(row) / expected, _between(row)
    than = "this machine's idle processes need" if by == "measured" else "other groups of ranks need"
    evidence = [f"median {duration(_typical(row))} in {count(row.calls, 'call')}, {duration(expected)} expected"]
    if row.bus_bytes_per_second:
        wanted = row.bus_bytes_per_second * _typical(row) / expected
        evidence.append(f"{size(row.bus_bytes_per_second)}/s on the links, {size(wanted)}/s expected")
    evidence.append(f"without waiting for ranks that arrive late; it costs at most {percent(share.high)} of the step")
    return Finding(
        rule="slow-link",
        share=share,
        title=f"The {row.collective} of {size(row.message_bytes)} {where} takes {times:.1f} times as long as {than}.",
        evidence=tuple(evidence),
        remedy=f"Look at the links {where}: `hotlap doctor --processes {max(2, row.group_size)}` measures them alone, "
        "NCCL_DEBUG=INFO names the transport, and NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME the interface.",
        levers=levers_for("slow-link"),
    )


def _between(row: SharedCollectiveRow) -> str:
    ranks = [str(it) for it in row.ranks]
    if len(ranks) < 2:
        return f"of the group {row.group}" if row.group else "between ranks"
    return f"between ranks {', '.join(ranks[:-1])} and {ranks[-1]}"


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------

_FACTS = ScriptFacts(device="cuda:0", processes=4)
_RATE = CollectiveRate(name="all-reduce", backend="gloo", processes=2, latency_seconds=1e-4, bytes_per_second=1e9)


def _row(
    milliseconds: float,
    *,
    group: str = "",
    ranks: tuple[int, ...] = (0, 1),
    megabytes: float = 4,
    shortest_ms: float | None = None,
) -> SharedCollectiveRow:
    return SharedCollectiveRow(
        collective="all-reduce",
        group=group,
        group_size=2,
        dtype="Float",
        message_bytes=int(megabytes * 1e6),
        calls=5,
        transfer_nanoseconds=int(5e6 * milliseconds),
        waiting_nanoseconds=0,
        bus_bytes_per_second=megabytes * 1e9 / milliseconds,
        typical_nanoseconds=int(1e6 * milliseconds),
        shortest_nanoseconds=int(9e5 * milliseconds) if shortest_ms is None else int(1e6 * shortest_ms),
        ranks=ranks,
    )


def _profile(*rows: SharedCollectiveRow, measured: bool = False) -> Profile:
    return Profile(
        facts=_FACTS,
        breakdowns=(rank_trace(0, 0, 0, 0, 0, 0),),
        collectives=CollectiveComparison(ranks=(), matched=5 * len(rows), rows=rows),
        measured_rates=(_RATE,) if measured else (),
    )


fires = {
    "six times what was measured": _profile(_row(24.6), measured=True),
    "gloo on busy cores, thirty times what was measured": msgspec.structs.replace(
        _profile(_row(140), measured=True), facts=ScriptFacts(processes=2), disturbed=("profile",)
    ),
    "a group at a tenth of the bandwidth of the other": _profile(_row(4, group="1"), _row(40, group="2", ranks=(2, 3))),
}

silent = {
    "nothing was measured": Profile(),
    "as long as was measured": _profile(_row(4.1), measured=True),
    "three times as long, next to computing": _profile(_row(12), measured=True),
    "most calls were slow, and one was not": _profile(_row(40, shortest_ms=5), measured=True),
    "gloo, while others kept the cores busy": msgspec.structs.replace(
        _profile(_row(40), measured=True), facts=ScriptFacts(processes=2), disturbed=("profile",)
    ),
    "one group, and no measured rate": _profile(_row(40)),
    "two groups that are alike": _profile(_row(4, group="1"), _row(5, group="2", ranks=(2, 3))),
    "messages so small that only their latency counts": _profile(_row(20, megabytes=0.001), measured=True),
    "slow, but a part of the step too small to matter": Profile(
        facts=_FACTS,
        breakdowns=(rank_trace(0, *(0,) * 100),),
        collectives=CollectiveComparison(ranks=(), matched=5, rows=(_row(1, megabytes=0.07),)),
        measured_rates=(_RATE,),
    ),
}
