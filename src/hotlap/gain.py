"""The gain of a study's plan, for reports, costs, plan files, history and checks."""

from __future__ import annotations

from hotlap.machine.label import machine_label
from hotlap.objective import judge, p99_state
from hotlap.records import Comparison, Kept, Outcome, RecordedGain, Seen, Study


def comparison_of_plan(study: Study) -> Comparison | None:
    """The comparison of the study's plan with the unmodified script.

    It is the verification or, in a finished study without one, the trial of these two (of the three-run lab). None if
    neither exists: the trials of an interrupted search compare single levers, each chosen because it looked best, and
    are not evidence about the plan.
    """
    if study.verification is not None:
        return study.verification
    if study.status != "finished":
        return None
    comparisons = [it.verdict.comparison for it in study.outcomes if isinstance(it.verdict, Kept)]
    whole = [it for it in comparisons if it.candidate == study.plan and not it.baseline.settings]
    return whole[-1] if whole else None


def exceeds_bound(look: Seen) -> bool:
    """Whether one look at a lever showed more than the step's own times allow: how much it gives is hidden by noise."""
    return look.bound is not None and look.speedup > look.bound


def own_comparison(outcome: Outcome) -> Comparison | None:
    """The comparison that shows what this lever gains; None if there is none, or only that of a whole plan."""
    comparison = getattr(outcome.verdict, "comparison", None)
    if not isinstance(comparison, Comparison):
        return None
    added = set(comparison.candidate.settings) - set(comparison.baseline.settings)
    is_whole = isinstance(outcome.verdict, Kept) and bool(outcome.together_with) and len(added) > 1
    return None if is_whole else comparison


def claimed(study: Study) -> Comparison | None:
    """That comparison if it supports a claim, else None.

    The plan must be kept and better by the study's objective, the baseline must agree with its repeat, and calls must
    keep the required p99.
    """
    found = comparison_of_plan(study) if study.plan.settings else None
    if found is None or judge(study.objective, found).verdict != "better" or not found.speed.baseline_agrees:
        return None
    if p99_state(study.objective, found.candidate_latency) != "kept":
        return None
    lost = found.quality is not None and found.quality.verdict == "lost"
    return None if lost else found


def claimed_speedup(study: Study) -> Comparison | None:
    """The same if it supports a claim of speed: a plan that saves memory may be slower."""
    found = claimed(study)
    return found if found is not None and found.speed.verdict == "faster" else None


def recorded_gain(study: Study) -> RecordedGain | None:
    """The gain of speed for a plan file; None if the study claims none."""
    found = claimed_speedup(study)
    if found is None:
        return None
    return RecordedGain(
        speedup=found.speed.speedup,
        confidence=found.speed.confidence,
        replicates=found.speed.replicates,
        machine=machine_label(study.machine),
        torch_version=dict(study.machine.library_versions).get("torch", ""),
    )
