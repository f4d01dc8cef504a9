"""The profiled launch: the unmodified script again, observed to find its bottlenecks.

It is a launch of its own, since observation and profiling make steps longer. Its times are not compared: the time
account of a profile is that of the first run, and no trial is observed like this.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from hotlap import plan as plans_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.work import beaten
from hotlap.errors import TraceError
from hotlap.evidence import RunEvidence
from hotlap.experiment import loader_alone
from hotlap.experiment.ceilings import Bounds, note_bounds
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import ran_through, steps_done
from hotlap.experiment.observe import Observation
from hotlap.experiment.quiet import quietly
from hotlap.experiment.trials import Trials
from hotlap.files import read_bounded
from hotlap.measure.parity.losses import FEWEST_STEPS
from hotlap.measure.run_account import run_account
from hotlap.records import CollectEvidence, Completed, Disturbance, Plan, Run, Setting, SweepLoader
from hotlap.study import PROFILE
from hotlap.traces import (
    Attribution,
    Breakdown,
    CollectiveLog,
    ExposedCommunication,
    HostTime,
    OperatorRow,
    analyse,
    collective_log,
    compare_collectives,
    exposed_communication,
    host_time,
    operators,
    read_trace,
)
from hotlap.wording import ending_text

ATTACHMENT = PROFILE
SEARCH_SHARE = 0.04
"""The share of a search's budget for finding bottlenecks before levers are tried."""

_WATCHED_SECONDS = 6.0
_USUAL_STEPS, _MOST_STEPS = 48, 200
_USUAL_STEPS_SECONDS = 30.0
"""A slow script is observed for fewer steps than usual if these would take longer than that."""

_PROFILED_SECONDS, _FEWEST_SECONDS = 0.5, 0.05
_FEWEST_PROFILED, _USUAL_PROFILED, _MOST_PROFILED = 3, 8, 32
"""Eight steps; fewer if they are long, and more if they would end within 50 ms, which one disturbance could fill."""

_PROFILED_PART = 5
"""At most one of so many steps is profiled: the others are observed, and calls are counted only in these."""

_STEPS_BEFORE_THE_END = 2
_SHORTEST_STEPS = 8
"""Three to warm up, three to profile, and some to observe."""

_WATCHING_FACTOR = 1.5
_PROFILING_FACTOR = 4.0
_PATIENCE = 2.0
_LONGEST_DELAY_SECONDS = 20.0
_ENDING_SECONDS = 3.0
"""Seconds for fetching samples under a profiler after the steps, and for writing and reading the trace."""

_MOST_RANKS = 8
_MOST_OPERATORS = 5_000
_MOST_EVIDENCE_BYTES = 64 * 2**20
_WITHOUT_OPERATORS = "Causes that only a trace shows were not checked."
_WITHOUT = "The findings rest on the time account and the ceilings alone."


@dataclass(frozen=True, slots=True)
class Length:
    """The steps of the launch; the last ``profiled`` of them run under the profiler."""

    steps: int
    profiled: int

    def seconds(self, trials: Trials, plan: Plan = plans_of.EMPTY) -> float:
        """An upper estimate of the seconds for the launch and for reading its trace."""
        return trials.costs.of_launch(plan, 0) + self.step_seconds(trials) + _ENDING_SECONDS

    def step_seconds(self, trials: Trials) -> float:
        """The estimated seconds of the steps alone."""
        watched, profiled = trials.costs.of_steps(self.steps), trials.costs.of_steps(self.profiled)
        return _WATCHING_FACTOR * watched + _PROFILING_FACTOR * profiled


def take_profile(
    trials: Trials, draft: StudyDraft, observation: Observation, bounds: Bounds, *, budget_share: float = 1.0
) -> tuple[Profile, Bounds]:
    """Profile the unmodified script with one more launch, if ``budget_share`` of the budget suffices for it, and time
    its loader alone with the settings that ``bounds`` names: at the end of that launch, or in one of its own.

    If the launch fails, the study gets a warning and the profile contains less. Its evidence is attached to the study,
    so that a resumed search has it even without the trace. The bounds are returned with what the loader showed.
    """
    length, run, disturbed = _profiled(trials, draft, observation, bounds.to_sweep, budget_share)
    bounds = _with_the_loader(trials, draft, bounds, run, disturbed)
    known = undisturbed(observation, bounds)
    if run is None or length is None:
        return known, bounds
    draft.disturbed("profile", disturbed)
    if disturbed is not None:
        known = msgspec.structs.replace(known, disturbed=(*known.disturbed, "profile"))
    if not ran_through(run):
        draft.warn(f"The profiled launch failed. {ending_text(run.ending)} {_WITHOUT}")
        return known, bounds
    trials.costs.learn_watched(run.steps.wall_seconds)
    profile = draft.attachment(ATTACHMENT, Profile) or with_evidence(known, run)
    if not profile.evidence.observed_steps:
        draft.warn(f"The profiled launch returned no evidence. {_WITHOUT}")
        return known, bounds
    draft.attach(ATTACHMENT, profile)
    _note(draft, profile, run, length)
    return _without_beaten_ceiling(draft, profile), bounds


def _profiled(
    trials: Trials, draft: StudyDraft, observation: Observation, to_sweep: tuple[Setting, ...], budget_share: float
) -> tuple[Length | None, Run | None, Disturbance | None]:
    """The launch with its length and what disturbed it, none of which if the budget is too small."""
    length = _affordable(trials, draft, budget_share)
    if length is None:
        return None, None, None
    to_sweep = to_sweep if trials.fits(length.seconds(trials) + loader_alone.seconds_of(to_sweep)) else ()
    launch = partial(_quiet_launch, trials, draft, observation=observation, budget_share=budget_share)
    after = f"; after them the loader alone, with {len(to_sweep)} settings" if to_sweep else ""
    draft.report(
        "profile",
        f"{length.steps} steps of the unmodified script, {length.profiled} of them under the profiler{after}",
    )
    run, disturbed = launch(length, to_sweep)
    shorter = _shorter(length, run)
    if shorter is not None and shorter.seconds(trials) <= trials.left_seconds:
        draft.report("profile", f"{shorter.steps} steps, since the script ends sooner than it did before")
        length = shorter
        run, disturbed = launch(length, to_sweep)
    elif to_sweep and not ran_through(run) and length.seconds(trials) <= trials.left_seconds:
        draft.report("profile", "The same without the loader alone, since that launch failed")
        run, disturbed = launch(length, ())
    return length, run, disturbed


def _with_the_loader(
    trials: Trials, draft: StudyDraft, bounds: Bounds, profiled: Run | None, disturbed: Disturbance | None
) -> Bounds:
    """The bounds with the rates of the loader alone, which the profiled launch or one of its own measured."""
    if not bounds.to_sweep:
        return bounds
    rates = profiled.loader_rates if profiled is not None else ()
    if all(it.error for it in rates):
        rates, disturbed = loader_alone.in_its_own_launch(trials, draft, bounds.to_sweep)
    if disturbed is not None:
        disturbed = msgspec.structs.replace(disturbed, measured="loader-alone")
        bounds = replace(bounds, disturbed=(*bounds.disturbed, "loader-alone"))
    draft.disturbed("loader-alone", disturbed)
    bounds = replace(bounds, situation=loader_alone.with_rates(bounds.situation, rates), to_sweep=())
    note_bounds(draft, bounds)
    return bounds


def undisturbed(observation: Observation, bounds: Bounds) -> Profile:
    """The profile of the first run and the ceilings, without evidence."""
    run, situation = observation.run, bounds.situation
    return Profile(
        facts=run.facts,
        machine=situation.machine,
        account=observation.account,
        run_account=run_account(run, observation.account),
        steps=run.steps,
        ceilings=situation.ceilings,
        loader_rates=situation.loader_rates,
        model_flop_utilisation=bounds.flop_utilisation,
        compile=run.compile,
        scaler_skipped_steps=run.scaler_skipped_steps,
        host_peak_bytes=run.host_peak_bytes,
        device_peak_bytes=run.device_peak_bytes,
        rank_step_seconds=run.rank_step_seconds,
        rank_forward_seconds=run.rank_forward_seconds,
        rank_other_seconds=run.rank_other_seconds,
        rank_losses=run.rank_losses,
        rank_samples=run.rank_samples,
        rank_weights=run.rank_weights,
        disturbed=bounds.disturbed,
        run_seconds=run.wall_seconds if isinstance(run.ending, Completed) else 0.0,
        fresh_bytes_per_step=_fresh_bytes_per_step(run),
    )


def _fresh_bytes_per_step(run: Run) -> float:
    steps = sum(it.steps for it in run.blocks)
    return sum(it.page_faults for it in run.blocks) * mmap.PAGESIZE / steps if steps else 0.0


def usual_length(trials: Trials) -> Length:
    """As many steps as take some seconds, within the script's length; of these, enough for a readable trace."""
    step_seconds = trials.costs.of_steps(1)
    usual = min(_USUAL_STEPS, math.ceil(_USUAL_STEPS_SECONDS / step_seconds))
    return _length(trials, max(usual, math.ceil(_WATCHED_SECONDS / step_seconds)))


def possible_lengths(trials: Trials) -> tuple[Length, ...]:
    """The usual length, and shorter ones for short budgets; all show whether the losses repeat those of the first run,
    which spares a proof a launch."""
    return usual_length(trials), _length(trials, _USUAL_STEPS), _length(trials, FEWEST_STEPS)


def _length(trials: Trials, steps: int) -> Length:
    """That many steps, or all that the script has."""
    available = trials.costs.shape.most_steps
    most = _MOST_STEPS if available is None else min(_MOST_STEPS, available - _STEPS_BEFORE_THE_END)
    steps = min(most, max(FEWEST_STEPS, steps))
    step_seconds = trials.costs.of_steps(1)
    usual = max(_USUAL_PROFILED, min(_MOST_PROFILED, math.ceil(_FEWEST_SECONDS / step_seconds)))
    profiled = min(usual, math.ceil(_PROFILED_SECONDS / step_seconds), steps // _PROFILED_PART)
    return Length(steps=steps, profiled=max(_FEWEST_PROFILED, profiled))


def _shorter(length: Length, run: Run) -> Length | None:
    """The length for a script that ended before the steps to profile; None if it did not, or is too short for any.

    It depends only on the run, so that a resumed study decides the same.
    """
    available = steps_done(run) - _STEPS_BEFORE_THE_END
    if not isinstance(run.ending, Completed) or steps_done(run) >= length.steps or available < _SHORTEST_STEPS:
        return None
    profiled = max(_FEWEST_PROFILED, min(length.profiled, available // _PROFILED_PART))
    return Length(steps=available, profiled=profiled)


def _affordable(trials: Trials, draft: StudyDraft, budget_share: float) -> Length | None:
    """The usual length, a shorter one, or None with a warning if none fits into the budget."""
    budget = trials.options.budget_seconds
    allowed = math.inf if budget is None else min(trials.left_seconds, budget_share * budget)
    *_, shortest = possible_lengths(trials)
    for length in possible_lengths(trials):
        if length.seconds(trials) <= allowed:
            return length
    draft.warn(
        f"The script was not profiled: that takes about {shortest.seconds(trials):.0f} s, and the budget leaves "
        f"{max(0.0, allowed):.0f} s for it. {_WITHOUT}"
    )
    return None


def _quiet_launch(
    trials: Trials,
    draft: StudyDraft,
    length: Length,
    to_sweep: tuple[Setting, ...],
    *,
    observation: Observation,
    budget_share: float,
) -> tuple[Run, Disturbance | None]:
    """Run the launch, and repeat it while other processes disturb it and its share of the budget lasts."""
    budget = trials.options.budget_seconds
    return quietly(
        trials,
        draft,
        "profile",
        lambda patience: launch_profiled(
            trials, length, processes=observation.facts.processes, patience_seconds=patience, to_sweep=to_sweep
        ),
        lambda run: [run],
        stage="profile",
        most_seconds=None if budget is None else budget_share * budget + loader_alone.seconds_of(to_sweep),
    )


def launch_profiled(
    trials: Trials,
    length: Length,
    plan: Plan = plans_of.EMPTY,
    *,
    processes: int,
    patience_seconds: float = 0.0,
    to_sweep: tuple[Setting, ...] = (),
) -> Run:
    """Run one launch of that length; after its steps the loader is timed alone with the settings ``to_sweep``.

    If observation costs more than estimated, it ends earlier, with the profiled steps. Several processes must do the
    same number of steps, and get all the time they need.
    """
    assignment = trials.assignment(plan)
    # The script ran before: if it hangs now, the launch is aborted soon, however large the budget is.
    startup = _LONGEST_DELAY_SECONDS + 3 * trials.costs.of_launch(plan, 0)
    watched = msgspec.structs.replace(
        assignment,
        instruments=(
            CollectEvidence(profiled_steps=length.profiled),
            *((SweepLoader(settings=to_sweep, after_steps=True),) if to_sweep else ()),
        ),
        startup_limit_seconds=min(assignment.startup_limit_seconds, startup),
        block_limit_seconds=_LONGEST_DELAY_SECONDS + 3 * length.seconds(trials, plan),
        # The profiler starts and ends between two steps.
        step_limit_seconds=max(_LONGEST_DELAY_SECONDS, assignment.block_limit_seconds),
    )
    patience = patience_seconds
    if processes > 1:
        return trials.launch(watched, steps=length.steps, most_seconds=math.inf, patience_seconds=patience)
    seconds = _PATIENCE * length.step_seconds(trials)
    return trials.launch(watched, steps=length.steps, seconds=seconds, patience_seconds=patience)


# ---------------------------------------------------------------------------------------------
# What the launch left behind
# ---------------------------------------------------------------------------------------------


def with_evidence(known: Profile, run: Run) -> Profile:
    """The profile with the evidence of every rank whose files exist; reads the traces, once."""
    paths = (run.rank_evidence_paths or (run.evidence_path,))[:_MOST_RANKS]
    seen = [it for it in map(_evidence_at, paths) if it is not None]
    if not seen:
        return known
    traces = [_trace_of(it) for it in seen]
    first = traces[0]
    return msgspec.structs.replace(
        known,
        evidence=seen[0],
        rank_lines=tuple(it.sampled for it in seen) if len(seen) == len(run.rank_step_seconds) else (),
        breakdowns=tuple(it.breakdown for it in traces if it is not None),
        collectives=compare_collectives([it.collectives for it in traces if it is not None]),
        exposed=tuple(it.exposed for it in traces if it is not None and it.exposed is not None),
        operators=first.operators if first is not None else (),
        host_time=first.host_time if first is not None else None,
        watched_startup_seconds=run.startup_seconds,
    )


def _evidence_at(path: str) -> RunEvidence | None:
    """The evidence that a process wrote; None if it is missing, unreadable or too large."""
    if not path:
        return None
    try:
        text = read_bounded(Path(path), _MOST_EVIDENCE_BYTES)
        return msgspec.json.decode(text, type=RunEvidence)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True)
class _Trace:
    """The breakdown of one rank's trace."""

    breakdown: Breakdown
    collectives: CollectiveLog
    exposed: ExposedCommunication | None
    operators: tuple[OperatorRow, ...]
    host_time: HostTime | None


def _trace_of(evidence: RunEvidence) -> _Trace | None:
    if evidence.window is None or not evidence.window.trace_path:
        return None
    try:
        timeline = read_trace(evidence.window.trace_path, with_inputs=True)
        attribution = Attribution(timeline, evidence.window.libraries)
        rows = operators(timeline, most=_MOST_OPERATORS, attribution=attribution)
        log = collective_log(timeline)
        return _Trace(analyse(timeline), log, exposed_communication(timeline, log.calls), rows, host_time(timeline))
    except (TraceError, OSError):
        return None


def _note(draft: StudyDraft, profile: Profile, run: Run, length: Length) -> None:
    """Note in the study what the findings are based on.

    It depends only on the profile and on answers in the journal, so that a resumed study gets the same.
    """
    window = profile.evidence.window
    trace_path = window.trace_path if window is not None and profile.breakdowns else ""
    draft.update(profiled_steps=profile.evidence.observed_steps, trace_path=trace_path)
    draft.warn(*_doubts(profile, run, length))


def _without_beaten_ceiling(draft: StudyDraft, profile: Profile) -> Profile:
    """A multiplication rate that the script's own operators exceed is not a ceiling."""
    sentence = beaten(profile)
    if not sentence:
        return profile
    ceilings = tuple(it for it in profile.ceilings if it.name != "matmul")
    draft.warn(f"{sentence} That test was disturbed: its rates are left out.")
    draft.update(ceilings=ceilings, model_flop_utilisation=None)
    return msgspec.structs.replace(profile, ceilings=ceilings, model_flop_utilisation=None)


def _doubts(profile: Profile, run: Run, length: Length) -> Iterable[str]:
    window, done = profile.evidence.window, steps_done(run)
    if window is None and isinstance(run.ending, Completed) and done < length.steps:
        yield (
            f"No steps were profiled: the script ended after {done} steps, and steps "
            f"{length.steps - length.profiled + 1} to {length.steps} were to be profiled. Let it train longer: "
            "more epochs, more samples or a smaller batch."
        )
    elif window is None:
        why = next((it for it in run.notes if "profiled" in it), "No steps were profiled.")  # as the window noted
        yield f"{why} {_WITHOUT_OPERATORS}"
    elif not profile.breakdowns:
        at = f" `hotlap trace {window.trace_path}` shows why." if window.trace_path else ""
        yield f"The profiled steps produced no readable trace.{at}"
    for breakdown in profile.breakdowns:
        if breakdown.unreliable:
            yield f"The trace of the profiled steps is unreliable: {breakdown.unreliable}."
