"""The sentences of a check: its result, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.records import (
    PHASES,
    Against,
    CheckCost,
    CheckVerdict,
    Disturbance,
    Estimate,
    NumbersCheck,
    PhaseShift,
    Quality,
    SpeedCheck,
    SpeedComparison,
)


def speed_text(
    verdict: CheckVerdict,
    against: Against,
    delta: float,
    comparison: SpeedComparison,
    judged: Estimate,
    at_least: float,
    *,
    short: bool,
    phases: Sequence[PhaseShift] = (),
    disturbance: Disturbance | None = None,
) -> str:
    """Sentences on the speed, with the changed phases and disturbances; ``short``: the budget ended the trials."""
    said = _about_speed(verdict, against, delta, comparison, judged, at_least, short=short)
    busy = f"It was measured while {disturbance.words}." if disturbance is not None else ""
    return " ".join(filter(None, (said, phases_text(phases, failed=verdict == "failed"), busy)))


def _about_speed(
    verdict: CheckVerdict,
    against: Against,
    delta: float,
    comparison: SpeedComparison,
    judged: Estimate,
    at_least: float,
    *,
    short: bool,
) -> str:
    measured = (
        f"{_ratio(comparison.speedup)}, {100 * comparison.confidence:.3g} % interval {_range(comparison.speedup)}"
    )
    if verdict == "passed" and against.recorded is None:
        measured += f", one-sided at least {at_least:.2f}"
    if not comparison.baseline_agrees:
        return f"No claim about the speed: {_lowered(comparison.remarks[-1])}"
    if against.kind == "revision":
        return _of_revision(verdict, against, delta, measured, comparison, short=short)
    if against.recorded is None:
        return _of_plan(verdict, delta, measured, comparison, short=short)
    then = f"{_ratio(against.recorded.speedup)} ({_range(against.recorded.speedup)})"
    share = f"{100 * judged.value:.0f} % of it, {100 * judged.low:.0f} to {100 * judged.high:.0f} %"
    if verdict == "passed":
        kept = f"at least {100 * at_least:.0f} % of it is still there"
        return f"The plan still makes it faster as recorded: {measured}; recorded {then}, and {kept}."
    if verdict == "failed":
        return f"The recorded gain is no longer there: {measured}, where {then} was recorded; that is {share}."
    return (
        f"Inconclusive whether the recorded gain of {then} is still there: {measured}; {_undecided(comparison, short)}."
    )


_MARGIN = 1.15
"""Estimates are up to that much too small."""


def phases_text(phases: Sequence[PhaseShift], *, failed: bool) -> str:
    """The changed phases, the largest change first, as shares of the step before."""
    moved = sorted((it for it in phases if it.moved), key=lambda it: -abs(it.change.value))
    if not moved:
        return "No single phase of the step changed measurably." if failed and phases else ""
    parts = [_shift_words(it) for it in moved]
    return f"As a share of the step before, {'; '.join(parts)}."


def _shift_words(it: PhaseShift) -> str:
    share, low, high = (100 * abs(value) for value in (it.change.value, it.change.low, it.change.high))
    low, high = min(low, high), max(low, high)
    direction = "more" if it.change.value > 0 else "less"
    was = f"{100 * it.before_share:.0f} % before" if it.before_share > 0 else "nothing before"
    interval = f"{100 * it.confidence:.3g} % interval {low:.1f} to {high:.1f} %"
    return f"{PHASES[it.phase].title} takes {share:.1f} % {direction} ({interval}; {was})"


def over_budget_text(cost: CheckCost, budget_seconds: float, disturbance: Disturbance | None) -> str:
    """Why nothing was compared: the cost of a check, and the budget."""
    busy = f" That was estimated while {disturbance.words}, and may be less on a quiet machine." if disturbance else ""
    return (
        f"Nothing was compared: the budget of {budget_seconds:.0f} s is too small for a check, which takes "
        f"about {cost.least_seconds:.0f} s to the first analysis and up to {cost.most_seconds:.0f} s to the "
        f"last.{busy} Give at least --budget {_MARGIN * cost.least_seconds:.0f}s, or none."
    )


def _of_revision(
    verdict: CheckVerdict, against: Against, delta: float, measured: str, found: SpeedComparison, *, short: bool
) -> str:
    if verdict == "passed":
        if found.verdict == "faster":
            return f"Faster than at {against.name}: {measured}."
        return f"Not slower than at {against.name} by {_percent(delta)} or more: {measured}."
    if verdict == "failed":
        return f"Slower than at {against.name}: {measured}; {_percent(delta)} is allowed."
    return f"Inconclusive whether it became slower than at {against.name}: {measured}; {_undecided(found, short)}."


def _of_plan(verdict: CheckVerdict, delta: float, measured: str, found: SpeedComparison, *, short: bool) -> str:
    if verdict == "passed":
        return f"The plan does not make it slower by {_percent(delta)} or more: {measured}."
    if verdict == "failed":
        return f"The plan makes it slower: {measured}; {_percent(delta)} is allowed."
    return f"Inconclusive whether the plan makes it slower: {measured}; {_undecided(found, short)}."


def _undecided(found: SpeedComparison, short: bool) -> str:
    why = "the budget ended the measurement, and " if short else ""
    remedy = f"{'a longer --budget, ' if short else ''}a quieter machine or a larger --delta can decide it"
    return f"{why}the smallest detectable effect is {_percent(found.smallest_detectable)}; {remedy}"


def numbers_text(against: Against, quality: Quality) -> str:
    """The result of the gates, and what to do if one failed."""
    if quality.verified:
        return quality.text
    if against.kind == "plan":
        return quality.text
    if quality.verdict == "lost":
        return f"{quality.text} If the change is meant to change training, check its speed alone: --speed-only."
    return f"{quality.text} Use --speed-only to skip this comparison."


def overall(speed: SpeedCheck, numbers: NumbersCheck | None) -> tuple[CheckVerdict, str]:
    """The verdict of both parts together, and the sentences behind it."""
    parts: Sequence[SpeedCheck | NumbersCheck] = [speed] if numbers is None else [speed, numbers]
    for verdict in ("failed", "inconclusive"):
        texts = [it.text for it in parts if it.verdict == verdict]
        if texts:
            return verdict, " ".join(texts)
    return "passed", " ".join(it.text for it in parts)


def _ratio(of: Estimate) -> str:
    return f"{of.value:.2f}x the speed"


def _range(of: Estimate) -> str:
    return f"{of.low:.2f} to {of.high:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
