"""Turn measurements into a verdict, with a sentence for the reason."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hotlap.experiment.goal import Goal
from hotlap.objective import gain as gain_of
from hotlap.objective import inverse, is_speed, metric_of, p99_of, p99_state
from hotlap.procedures.screen import Screened
from hotlap.records import (
    Comparison,
    Judgement,
    Kept,
    LimitJudgement,
    NoGain,
    NotVerified,
    Objective,
    Quality,
    QualityLost,
    Seen,
    Skipped,
    Verdict,
)
from hotlap.wording import metric_words, ratio, ratio_in_interval, ratio_over_rounds, share


def breaks_p99(comparison: Comparison, goal: Goal) -> NoGain | None:
    """The verdict on a candidate that exceeds the required p99 while its baseline does not."""
    states = [p99_state(goal.objective, it) for it in (comparison.baseline_latency, comparison.candidate_latency)]
    if states[1] != "broken" or states[0] == "broken":
        return None
    return NoGain(comparison=comparison, metric=goal.objective.metric, reason=_of_p99(comparison, goal.objective))


def of_quality(comparison: Comparison, quality: Quality, accept_unverified: bool) -> Verdict:
    """The verdict on a faster candidate, by the proof of its results."""
    if quality.verdict == "lost":
        return QualityLost(comparison=comparison, reason=quality.text)
    if quality.verdict == "not-verified" and not accept_unverified:
        return unverified(comparison, None, quality)
    if quality.verdict == "not-verified":
        return Kept(comparison=comparison, reason=f"Kept without proof (--accept-unverified). {quality.text}")
    return Kept(comparison=comparison, reason=quality.text)


def unverified(comparison: Comparison | None, gain: float | None, quality: Quality) -> NotVerified:
    """The verdict on a candidate whose proof stayed open; without a comparison, with the gain of one replicate."""
    where = ""
    if comparison is not None:
        where = "Measured within one launch. " if comparison.within_launch else ""
        comparison = msgspec.structs.replace(comparison, quality=quality)
    reason = f"{where}{quality.text} Use --accept-unverified to keep it anyway."
    return NotVerified(comparison=comparison, speedup=gain, reason=reason)


def no_gain(
    comparison: Comparison, goal: Goal, *, judgement: Judgement | None = None, unfinished: bool = False
) -> NoGain:
    """The verdict on a candidate that was not shown to be better.

    ``judgement`` is that of the objective if it is not only speed; ``unfinished``: the budget ended the trial.
    """
    metric = goal.objective.metric
    if not comparison.speed.baseline_agrees:
        reason = comparison.speed.remarks[-1]
    elif judgement is not None and not is_speed(goal.objective):
        reason = _why_not_better(comparison, goal, judgement, unfinished)
    else:
        reason = _why(comparison, goal.speed_delta, unfinished)
    return NoGain(comparison=comparison, metric=metric, reason=reason)


def as_a_whole(verdict: NoGain, others: Sequence[str]) -> NoGain:
    """The verdict on a plan, as that on one of its levers."""
    if not others:
        return verdict
    reason = f"Tried together with {', '.join(others)}. {verdict.reason}"
    return msgspec.structs.replace(verdict, reason=reason)


def little_in_first_measurements(seen: Screened, goal: Goal) -> NoGain:
    """The verdict on a candidate with a small possible gain, after a plan was verified."""
    if seen.comparison is not None:
        return no_gain_within_launch(seen.comparison, goal)
    reason = (
        f"First measurements (no interval) showed {ratio(seen.gain or 0.0)}, which is too little to tell "
        "from what launches differ by. `--only` tries it by itself."
    )
    return NoGain(metric=goal.objective.metric, reason=reason)


def little_by_bound(bound: float) -> Skipped:
    """The verdict on a candidate that arithmetic leaves little to gain, after a plan was verified."""
    text = (
        f"With the plan it could give {bound:.3f}x at most, which is too little to tell from what launches differ by. "
        "`--only` tries it by itself."
    )
    return Skipped(reason=text, bound=bound)


def no_gain_within_launch(comparison: Comparison, goal: Goal) -> NoGain:
    """The verdict on a candidate without a gain in one launch with the other levers."""
    reason = f"Within one launch it gave {_gain_within_launch(comparison)}: a gain of {share(goal.delta)} is not shown."
    return NoGain(comparison=comparison, metric=goal.objective.metric, reason=reason)


def _gain_within_launch(comparison: Comparison) -> str:
    """A gain with its interval, if that says anything, and the levers next to which it was measured."""
    others = [it.lever for it in comparison.baseline.settings]
    next_to = f" next to {', '.join(others)}" if others else ""
    return f"{ratio_over_rounds(comparison.speed.speedup)}{next_to}"


def seen(choice: Screened, gain: float, goal: Goal) -> Seen:
    """The verdict on a candidate that was screened, with this gain, but could not be proved."""
    rounds, bound, within = choice.rounds, choice.bound, None
    measured = f"Measured in one replicate of {rounds} rounds, not proved: no interval"
    if choice.comparison is not None:
        within = choice.comparison.speed.speedup
        gave = _gain_within_launch(choice.comparison)
        measured = f"Within one launch, {rounds} rounds gave {gave}; not proved on fresh launches"
    if bound is not None and gain > bound:
        reason = (
            f"One replicate of {rounds} rounds showed {ratio(gain)}. By the step's own times the lever can give "
            f"{ratio(bound)} at most, so that noise hides what it gives."
        )
    elif choice.doubt:
        reason = f"{measured}. {choice.doubt}"
    else:
        reason = f"{measured}, and results were not compared."
    metric = goal.objective.metric
    return Seen(speedup=gain, metric=metric, rounds=rounds, within_launch=within, bound=bound, reason=reason)


def no_time(screening_seconds: float, most_seconds: float, left_seconds: float) -> Skipped:
    """The verdict on a candidate that was not even screened: its replicate takes so many seconds, and at most so many
    if the lever starts slowly or hangs."""
    usual = f"Even one replicate takes about {screening_seconds:.0f} s"
    if screening_seconds <= left_seconds:
        usual += f", or up to {most_seconds:.0f} s if the script starts slowly with it or hangs"
    return Skipped(reason=f"{usual}, and {max(0.0, left_seconds):.0f} s of the budget are left.")


def quick_look_text(budget_seconds: float | None, needed_seconds: float | None, *, on_purpose: bool) -> str:
    """Why a study proved nothing, and which budget would."""
    proof = f" A proof needs --budget {needed_seconds:.0f}s." if needed_seconds is not None else ""
    if on_purpose:
        return f"Nothing is proved with --quick.{proof}"
    if budget_seconds is None:
        return f"Nothing could be proved.{proof}"
    return f"The budget of {budget_seconds:.0f} s is too small for a proof.{proof}"


def _why(comparison: Comparison, delta: float, unfinished: bool) -> str:
    found = comparison.speed
    if found.verdict == "slower":
        return "It is slower here."
    if found.verdict == "no-effect":
        return f"It makes no difference: less than {share(delta)} either way."
    if unfinished:
        return f"Inconclusive after {found.replicates} replicates, when the budget ended."
    if found.speedup.value < 1 + delta:
        return f"After {found.replicates} replicates a gain of {share(delta)} was unlikely, so its trial was stopped."
    return (
        f"Inconclusive after {found.replicates} replicates: the smallest detectable effect is "
        f"{share(found.smallest_detectable)}."
    )


def why_given_up(verification: Comparison, judgement: Judgement, objective: Objective) -> str:
    """Why a plan must not be kept after its verification; empty if it may be."""
    if judgement.verdict == "better" and p99_state(objective, verification.candidate_latency) == "kept":
        return ""
    if not verification.speed.baseline_agrees:
        return (
            "No claim and no plan: two copies of the unmodified script differed. Tune again when the machine "
            "is quieter."
        )
    if judgement.verdict == "better":
        return f"The plan was dropped, because a limit was not kept. {_of_p99(verification, objective)}"
    if judgement.metric_verdict == "better":
        return f"The plan was dropped, because a limit was not kept. {_why_limited(verification, judgement)}"
    return "Fresh launches did not confirm a gain of the whole plan, so it was dropped."


def _of_p99(comparison: Comparison, objective: Objective) -> str:
    """The sentence on a p99 of the candidate's calls that may exceed the required one."""
    allowed = f"{_milliseconds(objective.p99_seconds or 0.0)} is allowed"
    calls, found = comparison.candidate_latency, p99_of(comparison.candidate_latency)
    if found is None:
        return f"{calls.calls if calls is not None else 0} calls are too few for a p99, of which {allowed}."
    shown = f"{_milliseconds(found.value)} ({_milliseconds(found.low)} to {_milliseconds(found.high)})"
    return f"Its p99 is {shown}, and {allowed}."


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _why_limited(comparison: Comparison, judgement: Judgement) -> str:
    """The sentence on the first limit that may be exceeded; empty if there is none."""
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
        return f"{what} is unknown here, so the limit cannot be checked: {allowed}."
    doubt = "" if judged.state == "broken" else ", and it was not shown that this limit is kept"
    return f"{what} is {ratio_in_interval(found.ratio)} of the baseline's: {allowed}{doubt}."


def _why_not_better(comparison: Comparison, goal: Goal, judgement: Judgement, unfinished: bool) -> str:
    limited = _why_limited(comparison, judgement)
    if judgement.metric_verdict == "better" and limited:
        return limited
    what, best = metric_words(goal.objective.metric), gain_of(goal.objective, comparison)
    if best is None:
        return f"Its {what} is unknown here."
    level = ratio_in_interval(inverse(best))
    if judgement.metric_verdict == "worse":
        return f"Its {what} is {level} of the baseline's."
    if judgement.metric_verdict == "no-effect":
        return f"It makes no difference to the {what}: less than {share(goal.delta)} either way."
    if unfinished:
        return f"Inconclusive after {comparison.speed.replicates} replicates, when the budget ended: {what} {level}."
    return f"A gain of {share(goal.delta)} was not shown in {comparison.speed.replicates} replicates: {what} {level}."
