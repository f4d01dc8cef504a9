"""What rules read off the sampled lines of the training thread. Not a rule itself."""

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
"""Of the step: more time than this outside of every phase is a finding."""

_FEWEST_SAMPLES = 20
_SHOWN = 3
_WORTH_A_LINE = 0.1


class Parts(NamedTuple):
    """The lines seen in the phase ``other``, by what most of their time was."""

    collectives: list[SampledLine]
    asleep: list[SampledLine]
    work: list[SampledLine]

    @property
    def seconds(self) -> float:
        return sum(map(seconds_of, self))


def parts_of_other(profile: Profile) -> Parts | None:
    """What the steps' time outside of every phase is; None where there are too few samples of it. What prints, logs or
    writes counts as work, asleep or not: `logging-cost` reports it."""
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
    """Whether the thread slept for most of it; an operator of torch also sleeps until its other threads are done."""
    return 2 * line.asleep_seconds > line.seconds and not is_in_torch(line)


def waiting_share(profile: Profile) -> float:
    """Which part of the step the thread spends in collectives or asleep, where `other-time` reports that; else 0."""
    parts = parts_of_other(profile)
    if parts is None or parts.seconds <= 0:
        return 0.0
    other = phase_share(profile, "other").value
    waited = max(seconds_of(parts.collectives), seconds_of(parts.asleep)) / parts.seconds * other
    return waited if waited >= NOTABLE else 0.0


def sampled_in(profile: Profile, *phases: SampledPhase) -> list[SampledLine]:
    """The lines at which the training thread was seen in these phases, longest first."""
    return [it for it in profile.evidence.sampled.lines if it.phase in phases]


def seconds_of(lines: Iterable[SampledLine]) -> float:
    return sum(it.seconds for it in lines)


def first_site(lines: Iterable[SampledLine]) -> CallSite | None:
    """Where the first of these lines is that is the user's."""
    return next((it.site for it in lines if it.site is not None), None)


def line_with_most_time(lines: Iterable[SampledLine]) -> CallSite | None:
    """The user's line with most time, whatever it called."""
    seconds: defaultdict[Place, float] = defaultdict(float)
    sites: dict[Place, CallSite] = {}
    for it in lines:
        if it.site is not None:
            where = place_of(it.site)
            sites.setdefault(where, it.site)
            seconds[where] += it.seconds
    return sites[max(seconds, key=lambda it: seconds[it])] if seconds else None


def hottest(lines: list[SampledLine], within: str) -> Iterator[str]:
    """``31 % of start-up at train.py:12, in import``: the lines with most of the time, a tenth of it at least."""
    whole = seconds_of(lines)
    by_line: dict[str, float] = {}
    for it in lines:
        where = place(it.site) if it.site is not None else "no line of the script's"
        called = f", in {it.called}" if it.called else ""
        by_line[where + called] = by_line.get(where + called, 0.0) + it.seconds
    for where, seconds in sorted(by_line.items(), key=lambda it: -it[1])[:_SHOWN]:
        if whole > 0 and seconds >= _WORTH_A_LINE * whole:
            yield f"{percent(seconds / whole)} of {within} at {where}"
