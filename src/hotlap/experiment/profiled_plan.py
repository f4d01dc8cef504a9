"""The profiled launch of the final plan, which shows what of a step is gone next to that of the unmodified script.

Nothing is decided by it: findings rest on the unmodified script, and the gain on replicates. So it comes last, from
what the budget has left, and is neither repeated on a quieter machine nor a warning if it fails.
"""

from __future__ import annotations

from hotlap.diagnose.profile import Profile
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import ran_through
from hotlap.experiment.profiled_launch import Length, launch_profiled, possible_lengths, usual_length, with_evidence
from hotlap.experiment.trials import Trials
from hotlap.records import Plan, Run, ScriptFacts
from hotlap.study import PLAN_PROFILE
from hotlap.wording import ending_text


def seconds_to_profile(trials: Trials, plan: Plan) -> float:
    """The estimated seconds of that launch, if the budget has enough for its usual length."""
    return usual_length(trials).seconds(trials, plan)


def take_profile_of_plan(trials: Trials, draft: StudyDraft, plan: Plan, facts: ScriptFacts) -> None:
    """Profile the script with the plan, if the rest of the budget suffices; the study says why where it was not.

    What was seen is attached to the study, so that a resumed search has it even without the trace.
    """
    if not draft.study.profiled_steps:
        return  # there is nothing to compare it with, and a warning says so
    length = _affordable(trials, plan)
    if length is None:
        needed = possible_lengths(trials)[-1].seconds(trials, plan)
        left = max(0.0, trials.left_seconds)
        draft.update(
            plan_not_profiled=f"The plan was not profiled: that takes about {needed:.0f} s, and the budget had "
            f"{left:.0f} s left."
        )
        return
    draft.report("profile", f"{length.steps} steps with the plan, {length.profiled} of them under the profiler")
    run = launch_profiled(trials, length, plan, processes=facts.processes)
    if not ran_through(run):
        draft.update(plan_not_profiled=f"The plan could not be profiled. {ending_text(run.ending)}")
        return
    _note(draft, _profile_of(draft, plan, run))


def _affordable(trials: Trials, plan: Plan) -> Length | None:
    """The longest that the rest of the budget allows; None if it allows none."""
    return next((it for it in possible_lengths(trials) if trials.fits(it.seconds(trials, plan))), None)


def _profile_of(draft: StudyDraft, plan: Plan, run: Run) -> Profile:
    """What the launch saw; a resumed search may have another plan than the attachment."""
    attached = draft.attachment(PLAN_PROFILE, Profile)
    if attached is not None and attached.plan == plan:
        return attached
    return with_evidence(Profile(facts=run.facts, plan=plan), run)


def _note(draft: StudyDraft, profile: Profile) -> None:
    evidence = profile.evidence
    if not evidence.observed_steps:
        draft.update(plan_not_profiled="The plan could not be profiled: its launch returned no evidence.")
        return
    draft.attach(PLAN_PROFILE, profile)
    window = evidence.window
    draft.update(
        plan_profiled_steps=evidence.observed_steps,
        plan_trace_path=window.trace_path if window is not None and profile.breakdowns else "",
        plan_not_profiled="" if profile.breakdowns else "No readable trace of steps with the plan was recorded.",
    )
