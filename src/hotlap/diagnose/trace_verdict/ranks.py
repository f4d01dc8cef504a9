"""What the traces of several ranks show together: which rank the others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from hotlap.diagnose.rank import diagnose
from hotlap.diagnose.shares import MATERIAL, exactly
from hotlap.diagnose.trace_verdict.profile import profile_of
from hotlap.diagnose.trace_verdict.verdict import TraceVerdict, by_cost, without_steps
from hotlap.diagnose.wording import duration, levers_for, percent
from hotlap.records import Finding
from hotlap.traces.records import Breakdown, RankComparison

_BILLION = 1e9
_OF_RANKS = ("straggler", "exposed-communication")


def verdict_of_ranks(breakdowns: Sequence[Breakdown], comparison: RankComparison | None) -> TraceVerdict | None:
    """Compare the traces; None if there are no ranks to compare or they lose nothing."""
    if comparison is None:
        return None
    paths = {it.path for it in comparison.ranks}
    compared = [it for it in breakdowns if it.facts.path in paths]
    found = [it for it in diagnose(profile_of(compared)) if it.rule in _OF_RANKS]
    if not any(it.rule == "straggler" for it in found):
        found += _waited_for(comparison)
    if not comparison.steps:
        found = [without_steps(it) for it in found]
    return TraceVerdict(path="", findings=tuple(by_cost(found))) if found else None


def _waited_for(comparison: RankComparison) -> list[Finding]:
    """By the comparison, which needs no steps: it says how long the others wait in communication for one rank."""
    last = next((it for it in comparison.ranks if it.rank == comparison.waited_for), None)
    if last is None or comparison.waiting_share < MATERIAL:
        return []
    others = [it for it in comparison.ranks if it is not last]
    own, theirs = last.compute_nanoseconds, fmean(it.compute_nanoseconds for it in others)
    idle, their_idle = last.idle_nanoseconds, fmean(it.idle_nanoseconds for it in others)
    return [
        Finding(
            rule="straggler",
            share=exactly(comparison.waiting_share),
            title=f"The other ranks wait {percent(comparison.waiting_share)} of the step for rank {last.rank}.",
            evidence=(
                f"rank {last.rank} computes {duration(own / _BILLION)}, the others {duration(theirs / _BILLION)}",
                f"rank {last.rank} is idle {duration(idle / _BILLION)}, the others {duration(their_idle / _BILLION)}",
            ),
            remedy=f"Check what only rank {last.rank} does or has: logging and checkpoints in the loop, longer "
            "samples, fewer free cores, a device that is shared or throttled.",
            levers=levers_for("straggler"),
        )
    ]
