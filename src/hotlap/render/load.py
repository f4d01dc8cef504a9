"""Calls that arrive at random times, in words."""

from __future__ import annotations

from hotlap.records import Comparison, LoadComparison, LoadLimit
from hotlap.render import text


def load_words(comparison: Comparison) -> tuple[str, ...]:
    """The rates of both arms, and that they were computed; nothing where no p99 was required."""
    found = comparison.load
    if found is None:
        return ()
    allowed = text.duration(found.p99_seconds)
    if found.candidate.calls_per_second is None:
        why = _obstacle(found, found.candidate)
        return (f"How many calls per second may arrive with a p99 of {allowed} is unknown: {why}.",)
    times = f": {text.ratio(found.ratio.value)} ({text.interval(found.ratio)})" if found.ratio is not None else ""
    least = "at least " if found.candidate.at_least else "up to "
    return (
        f"Open-loop load: {least}{_rate(found.candidate)} may arrive at random times with a p99 of {allowed}, waiting "
        f"included; unmodified: {_unmodified(found)}{times}. Computed from measured calls, not served.",
    )


def rate_cells(comparison: Comparison) -> tuple[str, str]:
    """The rates of baseline and candidate, as ``152``, or ``from 152``; empty where they are unknown."""
    found = comparison.load
    return ("", "") if found is None else (_cell(found.baseline), _cell(found.candidate))


def _cell(limit: LoadLimit) -> str:
    if limit.calls_per_second is None:
        return ""
    return f"{'from ' if limit.at_least else ''}{_number(limit.calls_per_second.value)}"


def legend_of(comparison: Comparison) -> str:
    """What the cells are; empty where no p99 was required."""
    found = comparison.load
    if found is None:
        return ""
    return (
        f"Calls/s: how many calls per second may arrive at random times at one process, with 99 % answered within "
        f"{text.duration(found.p99_seconds)}, waiting included; computed from measured calls, for at most "
        f"{text.share(found.most_busy)} of its time busy."
    )


def _rate(limit: LoadLimit) -> str:
    found = limit.calls_per_second
    assert found is not None
    return f"{_number(found.value)} calls per second ({_number(found.low)} to {_number(found.high)})"


def _unmodified(comparison: LoadComparison) -> str:
    limit = comparison.baseline
    found = limit.calls_per_second
    if found is None:
        why = _obstacle(comparison, limit)
        return f"none, {why}" if limit.obstacle == "too-slow" else why
    least = "at least " if limit.at_least else ""
    return f"{least}{_number(found.value)} ({_number(found.low)} to {_number(found.high)})"


def _number(rate: float) -> str:
    return f"{rate:.3g}" if rate < 1000 else f"{rate:,.0f}"


def _obstacle(comparison: LoadComparison, limit: LoadLimit) -> str:
    if limit.obstacle == "too-few-calls":
        return f"a launch timed fewer than {comparison.fewest_calls} calls"
    return "its calls exceed this even without waiting"
