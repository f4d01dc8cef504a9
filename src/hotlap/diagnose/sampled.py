"""What rules derive from sampled lines of the training thread. Not a rule itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hotlap.diagnose.host_lines import Place, is_in_torch, place_of, reporting_places
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import phase_share
from hotlap.diagnose.wording import percent, place
from hotlap.evidence import SampledLine, SampledPhase
from hotlap.records import CallSite

NOTABLE = 0.1
"""A share of the step: more time outside of every phase is a finding."""

_FEWEST_SAMPLES = 20
_SHOWN = 3
_WORTH_A_LINE = 0.1


class Parts(NamedTuple):
    """The lines sampled in the phase ``other``, by the activity that took most of their time."""

    collectives: list[SampledLine]
    asleep: list[SampledLine]
    work: list[SampledLine]

    @property
    def seconds(self) -> float:
        return sum(map(seconds_of, self))


def parts_of_other(profile: Profile) -> Parts | None:
    """Classify the steps' time outside of all phases; None with too few samples.

    Lines that print, log or write count as work, asleep or not: `logging-cost` reports them.
    """
    lines = sampled_in(profile, "other")
    if sum(it.samples for it in lines) < _FEWEST_SAMPLES:
        return None
    rest = [it for it in lines if not it.collective]
    reporting = reporting_places(profile)
    asleep = [it for it in rest if _sleeps(it) and (it.site is None or place_of(it.site) not in reporting)]
    return Parts(
        collectives=[it for it in lines if it.collective],
        asleep=asleep,
        work=[it for it in rest if it not in asleep],
    )


def _sleeps(line: SampledLine) -> bool:
    """Whether the thread slept for most of it.

    An operator of torch also sleeps until its other threads finish.
    """
    return 2 * line.asleep_seconds > line.seconds and not is_in_torch(line)


def waiting_share(profile: Profile) -> float:
    """Return the share of the step in collectives or asleep, if `other-time` reports it; else 0."""
    parts = parts_of_other(profile)
    if parts is None or parts.seconds <= 0:
        return 0.0
    other = phase_share(profile, "other").value
    waited = max(seconds_of(parts.collectives), seconds_of(parts.asleep)) / parts.seconds * other
    return waited if waited >= NOTABLE else 0.0


def sampled_in(profile: Profile, *phases: SampledPhase) -> list[SampledLine]:
    """Return the training thread's lines in these phases, longest first."""
    return [it for it in profile.evidence.sampled.lines if it.phase in phases]


def seconds_of(lines: Iterable[SampledLine]) -> float:
    return sum(it.seconds for it in lines)


def first_site(lines: Iterable[SampledLine]) -> CallSite | None:
    """Return the place of the first of these lines that is the user's."""
    return next((it.site for it in lines if it.site is not None), None)


def line_with_most_time(lines: Iterable[SampledLine]) -> CallSite | None:
    """Return the user's line with the most time, whatever it called."""
    seconds: defaultdict[Place, float] = defaultdict(float)
    sites: dict[Place, CallSite] = {}
    for it in lines:
        if it.site is not None:
            where = place_of(it.site)
            sites.setdefault(where, it.site)
            seconds[where] += it.seconds
    return sites[max(seconds, key=lambda it: seconds[it])] if seconds else None


def hottest(lines: list[SampledLine], within: str) -> Iterator[str]:
    """Return ``31 % of start-up at train.py:12, in import`` for each line with at least a tenth."""
    whole = seconds_of(lines)
    by_line: dict[str, float] = {}
    for it in lines:
        where = place(it.site) if it.site is not None else "no line of the script's"
        called = f", in {it.called}" if it.called else ""
        by_line[where + called] = by_line.get(where + called, 0.0) + it.seconds
    for where, seconds in sorted(by_line.items(), key=lambda it: -it[1])[:_SHOWN]:
        if whole > 0 and seconds >= _WORTH_A_LINE * whole:
            yield f"{percent(seconds / whole)} of {within} at {where}"
