"""From numbers to a verdict, with the sentence that says why."""

from __future__ import annotations

from hotlap.experiment.goal import Goal
from hotlap.objective import gain as gain_of
from hotlap.objective import inverse, is_speed, metric_of
from hotlap.records import (
    Comparison,
    Estimate,
    Judgement,
    Kept,
    LimitJudgement,
    NoGain,
    NotVerified,
    ParityComparison,
    ParityLost,
    Seen,
    Skipped,
    Verdict,
)
from hotlap.wording import metric_words


def of_parity(comparison: Comparison, parity: ParityComparison, accept_unverified: bool) -> Verdict:
    """What becomes of something faster, by what is known of its numbers."""
    if parity.verdict == "lost":
        return ParityLost(comparison=comparison, reason=parity.text)
    if parity.verdict == "not-verified" and not accept_unverified:
        return NotVerified(comparison=comparison, reason=f"{parity.text} --accept-unverified keeps it all the same.")
    if parity.verdict == "not-verified":
        return Kept(comparison=comparison, reason=f"Kept without proof, as --accept-unverified asks. {parity.text}")
    return Kept(comparison=comparison, reason=parity.text)


def no_gain(
    comparison: Comparison, goal: Goal, *, judgement: Judgement | None = None, unfinished: bool = False
) -> NoGain:
    """What becomes of something that was not shown to be better; ``judgement`` is what the objective says where it is
    not speed alone, and ``unfinished`` tells that the budget ended the looks."""
    metric = goal.objective.metric
    if not comparison.speed.baseline_agrees:
        reason = comparison.speed.remarks[-1]
    elif judgement is not None and not is_speed(goal.objective):
        reason = _why_not_better(comparison, goal, judgement, unfinished)
    else:
        reason = _why(comparison, goal.speed_delta, unfinished)
    return NoGain(comparison=comparison, metric=metric, reason=reason)


def seen(gain: float, rounds: int, goal: Goal) -> Seen:
    """What becomes of something that was looked at and could not be proved."""
    reason = f"Seen in one set of {rounds} rounds, not proved: no interval, and the losses were not compared."
    return Seen(speedup=gain, metric=goal.objective.metric, rounds=rounds, reason=reason)


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
    if found.verdict == "slower":
        return "It is slower here."
    if found.verdict == "no-effect":
        return f"It makes no difference: less than {delta:.1%} either way."
    if unfinished:
        return f"Undecided after {found.sets} sets, when the budget ended."
    if found.speedup.value < 1 + delta:
        return f"After {found.sets} sets a gain of {delta:.1%} was not in sight, so it was not pursued."
    return f"Undecided after {found.sets} sets: an effect from {found.smallest_detectable:.1%} on would have shown."


def why_given_up(verification: Comparison, judgement: Judgement) -> str:
    """Why a plan must not be kept after its verification; empty where nothing speaks against it."""
    if judgement.verdict == "better":
        return ""
    if not verification.speed.baseline_agrees:
        return "No claim, and no plan: the script differed from itself. Tune again when the machine is quieter."
    if judgement.metric_verdict == "better":
        return f"The plan was given up, since a limit was not kept. {_why_limited(verification, judgement)}"
    return "Fresh launches did not confirm a gain of the whole plan, so it was given up."


def _why_limited(comparison: Comparison, judgement: Judgement) -> str:
    """The sentence on the first limit that is not shown to be kept; empty where all are."""
    for state in ("broken", "open"):
        for it in judgement.limits:
            if it.state == state:
                return _of_limit(comparison, it)
    return ""


def _of_limit(comparison: Comparison, judged: LimitJudgement) -> str:
    limit, what = judged.limit, metric_words(judged.limit.metric).capitalize()
    allowed = f"{limit.most:g}x of the script's is allowed"
    if judged.left != limit.most:
        allowed += f", of which the levers before it leave {judged.left:.3f}x"
    found = metric_of(comparison, limit.metric)
    if found is None:
        return f"{what} is not known here: {allowed}, and that it is kept cannot be shown."
    doubt = "" if judged.state == "broken" else ", and that it is kept was not shown"
    return f"{what} becomes {_ratio(found.ratio)} what it was: {allowed}{doubt}."


def _why_not_better(comparison: Comparison, goal: Goal, judgement: Judgement, unfinished: bool) -> str:
    limited = _why_limited(comparison, judgement)
    if judgement.metric_verdict == "better" and limited:
        return limited
    what, best = metric_words(goal.objective.metric), gain_of(goal.objective, comparison)
    if best is None:
        return f"Its {what} is not known here."
    level = _ratio(inverse(best))
    if judgement.metric_verdict == "worse":
        return f"Its {what} becomes {level} what it was."
    if judgement.metric_verdict == "no-effect":
        return f"It makes no difference to the {what}: less than {goal.delta:.1%} either way."
    if unfinished:
        return f"Undecided after {comparison.speed.sets} sets, when the budget ended: {what} {level}."
    return f"A gain of {goal.delta:.1%} was not shown in {comparison.speed.sets} sets: {what} {level}."


def _ratio(ratio: Estimate) -> str:
    return f"{ratio.value:.3f}x ({ratio.low:.3f} to {ratio.high:.3f})"
