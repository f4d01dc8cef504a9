"""The sentences of a check: what was found, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.check.records import Against, CheckVerdict, NumbersCheck, SpeedCheck
from hotlap.records import Estimate, ParityComparison, SpeedComparison


def speed_text(
    verdict: CheckVerdict,
    against: Against,
    delta: float,
    comparison: SpeedComparison,
    judged: Estimate,
    at_least: float,
    *,
    short: bool,
) -> str:
    """The speed in one or two sentences; ``short`` says that the budget ended the looks."""
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
    return f"Undecided whether the recorded gain of {then} is still there: {measured}; {_undecided(comparison, short)}."


def _of_revision(
    verdict: CheckVerdict, against: Against, delta: float, measured: str, found: SpeedComparison, *, short: bool
) -> str:
    if verdict == "passed":
        if found.verdict == "faster":
            return f"Faster than at {against.name}: {measured}."
        return f"Not slower than at {against.name} by {_percent(delta)} or more: {measured}."
    if verdict == "failed":
        return f"Slower than at {against.name}: {measured}; {_percent(delta)} is allowed."
    return f"Undecided whether it became slower than at {against.name}: {measured}; {_undecided(found, short)}."


def _of_plan(verdict: CheckVerdict, delta: float, measured: str, found: SpeedComparison, *, short: bool) -> str:
    if verdict == "passed":
        return f"The plan does not make it slower by {_percent(delta)} or more: {measured}."
    if verdict == "failed":
        return f"The plan makes it slower: {measured}; {_percent(delta)} is allowed."
    return f"Undecided whether the plan makes it slower: {measured}; {_undecided(found, short)}."


def _undecided(found: SpeedComparison, short: bool) -> str:
    why = "the budget ended the measurement, and " if short else ""
    remedy = f"{'a longer --budget, ' if short else ''}a quieter machine or a larger --delta can decide it"
    return f"{why}an effect from {_percent(found.smallest_detectable)} on would have shown; {remedy}"


def numbers_text(against: Against, parity: ParityComparison) -> str:
    """What the gates say, and what to do where they say no."""
    if parity.verdict in ("exact", "within"):
        return parity.text
    if against.kind == "plan":
        return parity.text
    if parity.verdict == "lost":
        return f"{parity.text} If the change is meant to change training, check its speed alone: --speed-only."
    return f"{parity.text} --speed-only leaves this question out."


def overall(speed: SpeedCheck, numbers: NumbersCheck | None) -> tuple[CheckVerdict, str]:
    """The verdict of both parts together, and the sentences that it rests on."""
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
