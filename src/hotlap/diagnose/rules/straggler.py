"""One rank is slower than the others, and they wait for it.

## What it is
All ranks synchronize in every step to exchange gradients. One of them is last in nearly every step: its samples are
longer, its machine is busier or its clocks are lower, or it alone logs, evaluates and writes checkpoints.

## Why it is slow
The step takes as long as on the slowest rank; all others idle meanwhile.

## How to see it
In the traces of the ranks: the step without its exposed communication is a rank's own work, and the others wait for the
rank that waits least in communication. Without traces, the ranks' time outside of backward and optimizer is compared,
or the wall times of their steps, which show it only if ranks do not synchronize in every step.

## What to do
Check what only this rank does (`if rank == 0:` in the loop), give all ranks samples of similar length, and compare the
clocks, temperatures and other processes of their devices, and the cores of their loaders.

## When it is fine
With pipeline or expert parallelism, where ranks have different work by design.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from hotlap.diagnose.api import Group
from hotlap.diagnose.communication import traced_ranks
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rank_traces import rank_trace
from hotlap.diagnose.sampled import first_site, hottest
from hotlap.diagnose.shares import share_of_steps
from hotlap.diagnose.wording import count, duration, levers_for, percent, share_of_step
from hotlap.evidence import LineSamples, RunEvidence, SampledLine, SampledPhase
from hotlap.measure.account import warm_up_steps
from hotlap.records import CallSite, Finding, ScriptFacts, Steps

title = "One rank is slower than the others"
group: Group = "distributed"

_FEWEST_STEPS = 3
_FEWEST_UNTRACED_STEPS = 8
_CLEARLY_SLOWER = 0.05
_SAME_RANK_SHARE = 0.8

_OWN_PHASES: tuple[SampledPhase, ...] = ("data_wait", "host_to_device", "forward", "other")
"""Phases in which a rank waits for others only in a collective that the script itself calls."""


class _Columns(NamedTuple):
    """Each rank's own work per step in seconds, the whole steps' lengths, and the source of both."""

    ranks: tuple[int, ...]
    own: tuple[tuple[float, ...], ...]
    whole: tuple[float, ...]
    source: str


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if the same rank is last in four of five steps, by more than 5 % of the step."""
    for columns in (_traced(profile), _before_they_meet(profile), _untraced(profile)):
        if columns is None:
            continue
        found = _finding(profile, columns)
        if found is not None:
            yield found
            return


def _finding(profile: Profile, columns: _Columns) -> Finding | None:
    rows = list(zip(*columns.own, strict=True))
    last, times_last = Counter(row.index(max(row)) for row in rows).most_common(1)[0]
    lost = tuple(row[last] - fmean(row) for row in rows)
    share = share_of_steps(lost, columns.whole)
    if times_last < _SAME_RANK_SHARE * len(rows) or share.value < _CLEARLY_SLOWER or share.low <= 0:
        return None
    return Finding(
        rule="straggler",
        share=share,
        title=f"Rank {columns.ranks[last]} is slower than the others, which costs {share_of_step(share)}.",
        evidence=(*_evidence(columns, last, times_last), *_where(profile, columns.ranks[last])),
        remedy=f"Check what only rank {columns.ranks[last]} does or has: logging and checkpoints in the loop, "
        "longer samples, fewer free cores, a device that is shared or throttled.",
        levers=levers_for("straggler"),
        site=first_site(_own_lines(profile, columns.ranks[last])),
    )


def _evidence(columns: _Columns, last: int, times_last: int) -> Iterator[str]:
    others = fmean(fmean(it) for index, it in enumerate(columns.own) if index != last)
    own = fmean(columns.own[last])
    yield (
        f"{columns.source}: {duration(own)} per step on rank {columns.ranks[last]}, {duration(others)} on the "
        f"{'other' if len(columns.own) == 2 else f'{len(columns.own) - 1} others'} ({percent(own / others - 1)} more)"
    )
    yield f"it was last in {times_last} of {count(len(columns.whole), 'step')}"
    yield "the share is the saving if the work were distributed evenly over all ranks"


def _where(profile: Profile, rank: int) -> Iterator[str]:
    """In which part of the step this rank takes longer, and its lines there."""
    parts = (("before backward", profile.rank_forward_seconds), ("outside of all phases", profile.rank_other_seconds))
    for part, rows in parts:
        settled = _settled(rows)
        if rank >= len(settled):
            continue
        more = fmean(settled[rank]) - fmean(fmean(it) for index, it in enumerate(settled) if index != rank)
        if more > 0:
            yield f"{duration(more)} more than the others {part}"
    yield from hottest(_own_lines(profile, rank), "its time there")


def _own_lines(profile: Profile, rank: int) -> list[SampledLine]:
    """The sampled lines of this rank in the part of the step in which it takes longest compared with the others."""
    if rank >= len(profile.rank_lines) or len(profile.rank_lines) < 2:
        return []
    per_rank = [_seconds_by_phase(it) for it in profile.rank_lines]
    others = [it for index, it in enumerate(per_rank) if index != rank]
    more = {it: per_rank[rank][it] - fmean(other[it] for other in others) for it in _OWN_PHASES}
    longest = max(_OWN_PHASES, key=more.__getitem__)
    lines = profile.rank_lines[rank].lines if more[longest] > 0 else ()
    return [it for it in lines if it.phase == longest and not it.collective]


def _seconds_by_phase(sampled: LineSamples) -> dict[SampledPhase, float]:
    return {
        phase: sum(it.seconds for it in sampled.lines if it.phase == phase and not it.collective)
        for phase in _OWN_PHASES
    }


def _traced(profile: Profile) -> _Columns | None:
    ranks = traced_ranks(profile)
    steps = min((len(it.step) for it in ranks), default=0)
    if len(ranks) < 2 or steps < _FEWEST_STEPS:
        return None
    return _Columns(
        ranks=tuple(it.rank for it in ranks),
        own=tuple(_seconds(it.own[:steps]) for it in ranks),
        whole=_longest([_seconds(it.step[:steps]) for it in ranks]),
        source="without waiting in communication",
    )


def _before_they_meet(profile: Profile) -> _Columns | None:
    """Loading, forward, and what lies outside of all phases: whoever takes longer there comes later to where gradients
    are exchanged. Where the script calls collectives of its own there, that time is waiting as well, and does not
    count; nor does it where no sampled lines show whether it does."""
    whole = _settled(profile.rank_step_seconds)
    own = _settled(_own_seconds(profile))
    if not whole or len(own) != len(whole) or len(own[0]) != len(whole[0]):
        return None
    return _Columns(tuple(range(len(own))), own, _longest(whole), source="until backward, by the ranks' own clocks")


def _own_seconds(profile: Profile) -> tuple[tuple[float, ...], ...]:
    forward, other = profile.rank_forward_seconds, profile.rank_other_seconds
    if _may_meet_elsewhere(profile) or [len(it) for it in other] != [len(it) for it in forward]:
        return forward
    return tuple(tuple(map(sum, zip(*rows, strict=True))) for rows in zip(forward, other, strict=True))


def _may_meet_elsewhere(profile: Profile) -> bool:
    """Whether a collective was sampled outside of all phases, or nothing was sampled."""
    lines = profile.evidence.sampled.lines
    return not lines or any(it.collective and it.phase == "other" for it in lines)


def _untraced(profile: Profile) -> _Columns | None:
    own = _settled(profile.rank_step_seconds)
    return _Columns(tuple(range(len(own))), own, _longest(own), source="by the ranks' own clocks") if own else None


def _settled(rows: Sequence[tuple[float, ...]]) -> tuple[tuple[float, ...], ...]:
    """Return the rows without warm-up and of one length; none with too few ranks or steps."""
    steps = min((len(it) for it in rows), default=0)
    skip = warm_up_steps(Steps(wall_seconds=rows[0][:steps])) if rows else 0
    if len(rows) < 2 or steps - skip < _FEWEST_UNTRACED_STEPS:
        return ()
    return tuple(it[skip:steps] for it in rows)


def _seconds(nanoseconds: Sequence[int]) -> tuple[float, ...]:
    return tuple(it / 1e9 for it in nanoseconds)


def _longest(columns: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(max(row) for row in zip(*columns, strict=True))


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------

_FACTS = ScriptFacts(device="cuda:0", processes=2)


def _traces(*exposed_ms: tuple[float, ...]) -> Profile:
    """Ranks with steps of 100 ms; the more of it is exposed communication, the less a rank had to do by itself."""
    return Profile(
        facts=_FACTS,
        breakdowns=tuple(rank_trace(rank, *it) for rank, it in enumerate(exposed_ms)),
    )


_GATHERED = SampledLine(phase="other", samples=50, seconds=0.5, called="torch.distributed.all_reduce", collective=True)
_REPORTED = SampledLine(
    phase="other",
    samples=50,
    seconds=0.5,
    called="json.dump",
    site=CallSite(role="call", file="/home/ada/t.py", line=9),
)

fires = {
    "one rank never waits": _traces((40, 41, 39, 40), (1, 2, 1, 1), (38, 40, 41, 40)),
    "two ranks, five steps": _traces((1, 1, 2, 25, 1), (30, 28, 31, 1, 30)),
    "ranks that do not meet in every step": Profile(
        facts=_FACTS, rank_step_seconds=((0.10,) * 30, (0.13,) * 30, (0.10,) * 30)
    ),
    "ranks that meet in every step, one of which reports first": Profile(
        facts=_FACTS,
        evidence=RunEvidence(sampled=LineSamples(samples=50, lines=(_REPORTED,))),
        rank_step_seconds=((0.13,) * 30,) * 2,
        rank_forward_seconds=((0.02,) * 30,) * 2,
        rank_other_seconds=((0.03,) * 30, (0.001,) * 30),
        rank_lines=(LineSamples(samples=50, lines=(_REPORTED,)), LineSamples(samples=50)),
    ),
    "ranks that meet in every step, one of them late": Profile(
        facts=_FACTS, rank_step_seconds=((0.13,) * 30,) * 2, rank_forward_seconds=((0.02,) * 30, (0.05,) * 30)
    ),
}

silent = {
    "the fast rank waits in a collective of the script's own": Profile(
        facts=_FACTS,
        evidence=RunEvidence(sampled=LineSamples(samples=50, lines=(_GATHERED,))),
        rank_step_seconds=((0.13,) * 30,) * 2,
        rank_forward_seconds=((0.02,) * 30,) * 2,
        rank_other_seconds=((0.03,) * 30, (0.001,) * 30),
    ),
    "a rank may wait in a collective of the script's own, and no lines were sampled": Profile(
        facts=_FACTS,
        rank_step_seconds=((0.13,) * 30,) * 2,
        rank_forward_seconds=((0.02,) * 30,) * 2,
        rank_other_seconds=((0.03,) * 30, (0.001,) * 30),
    ),
    "nothing was measured": Profile(),
    "all communicate alike": _traces((20, 21, 20, 20), (21, 20, 20, 21)),
    "another one comes last each time": _traces((30, 1, 30, 1), (1, 30, 1, 30)),
    "a small difference": _traces((5, 6, 5, 5), (1, 1, 2, 1)),
    "two steps": _traces((40, 40), (1, 1)),
    "ranks that meet in every step": Profile(facts=_FACTS, rank_step_seconds=((0.13,) * 30, (0.13,) * 30)),
    "forwards that take equally long, in steps that do too": Profile(
        facts=_FACTS, rank_step_seconds=((0.13,) * 30,) * 2, rank_forward_seconds=((0.041,) * 30, (0.04,) * 30)
    ),
    "one rank": Profile(rank_step_seconds=((0.13,) * 30,)),
}
