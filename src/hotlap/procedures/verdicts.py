"""From numbers to a verdict, with the sentence that says why."""

from __future__ import annotations

from hotlap.records import (
    Comparison,
    Kept,
    NoGain,
    NotVerified,
    ParityComparison,
    ParityLost,
    Seen,
    Skipped,
    Verdict,
)


def of_parity(comparison: Comparison, parity: ParityComparison, accept_unverified: bool) -> Verdict:
    """What becomes of something faster, by what is known of its numbers."""
    if parity.verdict == "lost":
        return ParityLost(comparison=comparison, reason=parity.text)
    if parity.verdict == "not-verified" and not accept_unverified:
        return NotVerified(comparison=comparison, reason=f"{parity.text} --accept-unverified keeps it all the same.")
    if parity.verdict == "not-verified":
        return Kept(comparison=comparison, reason=f"Kept without proof, as --accept-unverified asks. {parity.text}")
    return Kept(comparison=comparison, reason=parity.text)


def no_gain(comparison: Comparison, delta: float, *, unfinished: bool = False) -> NoGain:
    """What becomes of something that was not shown to be faster; ``unfinished`` when the budget ended the looks."""
    return NoGain(comparison=comparison, reason=_why(comparison, delta, unfinished))


def seen(speedup: float, rounds: int) -> Seen:
    """What becomes of something that was looked at and could not be proved."""
    reason = f"Seen in one set of {rounds} rounds, not proved: no interval, and the losses were not compared."
    return Seen(speedup=speedup, rounds=rounds, reason=reason)


def no_time(look_seconds: float, left_seconds: float) -> Skipped:
    """What becomes of something that could not even be looked at."""
    left = max(0.0, left_seconds)
    return Skipped(reason=f"Even a look takes about {look_seconds:.0f} s, and the budget leaves {left:.0f} s.")


def quick_look_text(budget_seconds: float | None, needed_seconds: float | None, *, on_purpose: bool) -> str:
    """Why a study proved nothing, and what would."""
    proof = f" A proof needs --budget {needed_seconds:.0f}s." if needed_seconds is not None else ""
    if on_purpose or budget_seconds is None:
        return f"With --quick nothing is proved.{proof}"
    return f"The budget of {budget_seconds:.0f} s is too small for a proof.{proof}"


def _why(comparison: Comparison, delta: float, unfinished: bool) -> str:
    found = comparison.speed
    if not found.baseline_agrees:
        return found.remarks[-1]
    if found.verdict == "slower":
        return "It is slower here."
    if found.verdict == "no-effect":
        return f"It makes no difference: less than {delta:.1%} either way."
    if unfinished:
        return f"Undecided after {found.sets} sets, when the budget ended."
    if found.speedup.value < 1 + delta:
        return f"After {found.sets} sets a gain of {delta:.1%} was not in sight, so it was not pursued."
    return f"Undecided after {found.sets} sets: an effect from {found.smallest_detectable:.1%} on would have shown."
