"""Is it really faster? Paired sets of the reference, the reference again, and the candidate; looks at 3, 5 and 8."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from hotlap import plan as plans_of
from hotlap.experiment.book import Book
from hotlap.experiment.trials import Failure, Trials
from hotlap.measure import levels, speed
from hotlap.measure.disturbance import disturbances
from hotlap.measure.metrics.api import compare_metrics
from hotlap.objective import NOTHING_USED
from hotlap.records import Comparison, Estimate, Plan, Run, SpeedComparison, Stage, Stopped, TurnSet

BASELINE, REPEAT, CANDIDATE = range(3)

_OUT_OF_SIGHT_CONFIDENCE = 0.6


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Sets of three arms and what they say. ``unfinished`` tells that the budget ended the looks early."""

    comparison: Comparison
    sets: tuple[TurnSet, ...]
    unfinished: bool = False

    @property
    def speed(self) -> SpeedComparison:
        return self.comparison.speed

    @property
    def candidate_run(self) -> Run:
        return self.sets[-1].runs[CANDIDATE]


def first_look_cost(trials: Trials, reference: Plan, candidate: Plan, rounds: int) -> float:
    """Seconds until the first look can decide anything."""
    return speed.LOOKS[0].sets * trials.costs.of_set([reference, reference, candidate], rounds)


def confirm(
    trials: Trials,
    book: Book,
    reference: Plan,
    candidate: Plan,
    *,
    lever: str,
    stage: Stage = "trial",
    used: Mapping[str, float] = NOTHING_USED,
) -> Confirmation | Failure:
    """Take sets until a look decides; ``used`` is what the reference takes of what is limited.

    Beside the looks' own rule a trial ends when the gain worth having is out of sight: when even the upper end of a
    60 % interval lies below it. That gives up some power for small gains, and adds no false alarm.
    """
    sets: list[TurnSet] = []
    for position, look in enumerate(speed.LOOKS):
        cost = (look.sets - len(sets)) * trials.costs.of_set([reference, reference, candidate], trials.rounds)
        if position > 0 and not trials.fits(cost):
            return Confirmation(_comparison(trials, reference, candidate, sets), tuple(sets), unfinished=True)
        whole = len(sets)
        failure = take_sets(trials, book, reference, candidate, sets, upto=look.sets, lever=lever, stage=stage)
        if failure is not None and failure.cut and whole:
            del sets[whole:]
            return Confirmation(_comparison(trials, reference, candidate, sets), tuple(sets), unfinished=True)
        if failure is not None:
            return failure
        comparison = _comparison(trials, reference, candidate, sets)
        if trials.options.goal.is_decided(comparison, look.sets, used):
            break
        at_a_glance = _comparison(trials, reference, candidate, sets, _OUT_OF_SIGHT_CONFIDENCE)
        if trials.options.goal.is_out_of_reach(at_a_glance):
            break
        adapt_rounds(trials, sets)
    return Confirmation(comparison, tuple(sets))


def take_sets(
    trials: Trials,
    book: Book,
    reference: Plan,
    candidate: Plan,
    sets: list[TurnSet],
    *,
    upto: int,
    planned: int = 0,
    lever: str = "",
    stage: Stage = "trial",
) -> Failure | None:
    """Add fresh sets to ``sets`` until there are so many; a Failure when the candidate (or even the script) failed.

    ``planned`` is how many there will be at last, where others follow.
    """
    planned = max(planned, upto)
    purpose = f"{stage} {plans_of.key(reference)} {plans_of.key(candidate)}"
    while len(sets) < upto:
        what = lever or "the whole plan"
        text = f"{what}: set {len(sets) + 1} of {planned}"
        running = _running(sets, trials.options.delta)
        book.tell(
            stage,
            text,
            lever=lever,
            sets_done=len(sets),
            sets_planned=planned,
            running=running,
            peak_bytes=_peak_bytes(sets, CANDIDATE),
            baseline_peak_bytes=_peak_bytes(sets, BASELINE),
        )
        turns = trials.take_set([reference, reference, candidate], rounds=trials.rounds, purpose=purpose)
        if isinstance(turns, Failure):
            return turns
        diverged = divergence(turns.runs[BASELINE], turns.runs[CANDIDATE])
        if diverged is not None:
            return diverged
        sets.append(turns)
    return None


def compare_sets(
    sets: Sequence[TurnSet], *, delta: float, confidence: float, arms: tuple[int, int, int] = (0, 1, 2)
) -> SpeedComparison:
    """The arm ``arms[2]`` against ``arms[0]``, with ``arms[1]`` as the reference's repeat."""
    runs = [run for it in sets for run in it.runs]
    remarks = list(disturbances(runs))
    if not all(it.interleaved for it in sets):
        remarks.append("Memory allowed one launch at a time only, so whole launches were alternated.")
    baseline, repeat, candidate = ([it.rounds[arm] for it in sets] for arm in arms)
    return speed.compare(baseline, repeat, candidate, delta=delta, confidence=confidence, remarks=remarks)


def comparison_of(
    reference: Plan,
    candidate: Plan,
    sets: Sequence[TurnSet],
    found: SpeedComparison,
    *,
    candidate_arm: int = CANDIDATE,
) -> Comparison:
    """The record of a comparison, with the memory peaks of both sides (per launch, the largest), the level of the
    reference, and what the candidate changes beside the speed: its start and its energy."""
    arms = (BASELINE, candidate_arm)
    return Comparison(
        baseline=reference,
        candidate=candidate,
        speed=found,
        baseline_peak_bytes=_peak_bytes(sets, BASELINE),
        candidate_peak_bytes=_peak_bytes(sets, candidate_arm),
        metrics=compare_metrics(sets, confidence=found.confidence, arms=(BASELINE, REPEAT, candidate_arm)),
        baseline_seconds_per_sample=levels.seconds_per_sample(sets, BASELINE, confidence=found.confidence),
        extra_startup_seconds=levels.extra_startup_seconds(sets, confidence=found.confidence, arms=arms),
        energy=levels.energy(sets, confidence=found.confidence, arms=arms),
    )


def peak_bytes(run: Run) -> int:
    """The device's peak where there is one, else the host's."""
    return run.device_peak_bytes or run.host_peak_bytes


def launch_noise(sets: Sequence[TurnSet]) -> list[float]:
    """What each set's repeat of the reference differed from it by, as logarithms."""
    return [_log_ratio(it.rounds[BASELINE], it.rounds[REPEAT]) for it in sets]


def adapt_rounds(trials: Trials, sets: Sequence[TurnSet]) -> None:
    """More rounds where rounds are noisy and launches dear, fewer where launches differ anyway (method, item 9)."""
    first, second = ([it.rounds[arm] for it in sets] for arm in (BASELINE, REPEAT))
    if len(sets) < 2 or min(len(it) for it in first) < 2:
        return
    costs = trials.costs
    rounds = speed.round_count(
        launch_seconds=costs.overhead_seconds,
        round_seconds=costs.shape.round_seconds,
        parts=speed.variance_parts(first, second),
    )
    trials.set_rounds(rounds)


def divergence(reference: Run, candidate: Run) -> Failure | None:
    """A loss that became NaN or infinite where the reference's stayed finite."""
    reached = len(reference.steps.wall_seconds)
    rows = [row for row in candidate.steps.not_finite if row < reached]
    if not rows or reference.steps.not_finite:
        return None
    return Failure(CANDIDATE, Stopped(), f"It diverged: from step {rows[0] + 1} on the loss is no longer finite.")


def _comparison(
    trials: Trials, reference: Plan, candidate: Plan, sets: Sequence[TurnSet], confidence: float | None = None
) -> Comparison:
    """With the confidence that the look at so many sets demands, unless another is asked for."""
    confidence = confidence or 1 - speed.alpha_at(len(sets))
    found = compare_sets(sets, delta=trials.options.delta, confidence=confidence)
    return comparison_of(reference, candidate, sets, found)


def _running(sets: Sequence[TurnSet], delta: float) -> Estimate | None:
    """The interval so far, for somebody who watches; no decision rests on it."""
    if len(sets) < 2:
        return None
    return compare_sets(sets, delta=delta, confidence=speed.HEADLINE_CONFIDENCE).speedup


def _log_ratio(one: Sequence[float], other: Sequence[float]) -> float:
    return fmean(math.log(a / b) for a, b in zip(one, other, strict=True))


def _peak_bytes(sets: Sequence[TurnSet], arm: int) -> int:
    return max((peak_bytes(it.runs[arm]) for it in sets), default=0)
