"""What lies outside of steps, as findings put it. Not a rule itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import MATERIAL, SURELY
from hotlap.diagnose.wording import count, duration, percent, place
from hotlap.evidence import SampledLine, SampledPhase
from hotlap.records import Estimate, OutsideKind, OutsidePart

_SHOWN = 3
_WORTH_A_LINE = 0.1


def part_of(profile: Profile, kind: OutsideKind) -> OutsidePart | None:
    """What the run spends on this, where that is worth a word."""
    account = profile.run_account
    part = next((it for it in account.outside if it.kind == kind), None) if account is not None else None
    if part is None:
        return None
    if part.every_steps is None:
        return part if part.share.high >= MATERIAL else None
    return part if part.share.value >= MATERIAL and part.share.low >= SURELY else None


def cost_of(part: OutsidePart) -> Estimate:
    """The part's share; that of one whose rhythm is not known is a bound."""
    share = part.share
    return (
        share if part.every_steps is not None else Estimate(value=share.high, low=0.0, high=share.high, unit=share.unit)
    )


def share_words(part: OutsidePart) -> str:
    """``85 % of the run``, or ``at most 12 % of the run``."""
    share = cost_of(part)
    return f"{'at most ' if part.every_steps is None else ''}{percent(share.value)} of the run"


def how_often(profile: Profile, part: OutsidePart) -> Iterator[str]:
    """How often it was seen, how long it takes, and what the step can give at most."""
    account = profile.run_account
    assert account is not None
    seen = f"seen {count(part.blocks, 'time')} in {account.steps} steps of {duration(account.step_seconds)}"
    each = f"{duration(part.seconds)}{' each' if part.blocks > 1 else ''}"
    if part.every_steps is None:
        yield f"{seen}: {each}; how often it comes in a longer run is not known"
    elif part.at_epoch_ends:
        yield f"{seen}: {each}, at the end of an epoch of {account.epoch_steps} steps"
    else:
        yield f"{seen}: {each}, every {count(round(part.every_steps), 'step')}"
    if account.most_speedup is not None and account.step_share.value < 1 - MATERIAL:
        yield f"tuning the step alone can make the whole run at most {account.most_speedup:.2f}x as fast"


def sampled_in(profile: Profile, *phases: SampledPhase) -> list[SampledLine]:
    """The lines at which the training thread was seen in these phases, longest first."""
    return [it for it in profile.evidence.sampled.lines if it.phase in phases]


def seconds_of(lines: Iterable[SampledLine]) -> float:
    return sum(it.seconds for it in lines)


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
