"""Verify the final plan: compare it with the unmodified script, on fresh replicates.

The best of many candidates looks better than it is, so no data that chose the plan is used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.comparing import BASELINE, CANDIDATE, compare_parts, compare_replicates, comparison_of, with_load
from hotlap.experiment.costs import FEWEST_ROUNDS, FEWEST_ROUNDS_OF_A_SHORT_SCRIPT, LAST_RESORT_ROUNDS
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.prove import Prover
from hotlap.experiment.replicates import Design, replicate
from hotlap.experiment.trials import Trials
from hotlap.measure import speed
from hotlap.objective import judge, p99_state
from hotlap.records import Comparison, CompileReport, Plan, Quality, Replicate, Run

MORE_REPLICATES = speed.ANALYSES[-1]
"""The second analysis, if the first is inconclusive, and the share of false positives that it may spend."""

_LAST_REPLICATES = 2
"""While more than that are to come, they make up for one that took long."""
_MARGIN = 1.05
"""A round is begun only if it probably ends in time, so the last one needs a little more than it takes."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison with the unmodified script, and the last run of each.

    ``parts`` compares the plan without a lever with the plan, for each lever that it was also launched without.
    """

    comparison: Comparison
    baseline_run: Run
    run: Run
    replicates: tuple[Replicate, ...]
    parts: Mapping[str, Comparison] = field(default_factory=dict)

    @property
    def compile(self) -> CompileReport:
        """What compiling costs in the plan's first run: the arms of the first replicate compile all."""
        return self.replicates[0].runs[CANDIDATE].compile

    def with_quality(self, quality: Quality) -> Verification:
        """The same with the proof of the results."""
        return replace(self, comparison=msgspec.structs.replace(self.comparison, quality=quality))

    def after(self, disturbed: Verification) -> Verification:
        """The same, saying that it was measured once more because these replicates support no claim."""
        itself = disturbed.comparison.speed.baseline_speedup
        differed = f": {itself.value:.3f}x ({itself.low:.3f} to {itself.high:.3f})" if itself is not None else ""
        remark = (
            f"Measured a second time, on fresh launches: in the first {disturbed.comparison.speed.replicates} "
            f"replicates, which are not used, two copies of the unmodified script differed{differed}."
        )
        own = self.comparison.speed
        noted = msgspec.structs.replace(own, remarks=(remark, *own.remarks))
        return replace(self, comparison=msgspec.structs.replace(self.comparison, speed=noted))


def verification_cost(
    trials: Trials, prover: Prover | None, plan: Plan, rounds: int | None = None, *, without: Sequence[str] = ()
) -> float:
    """The estimated seconds of this plan's verification, with so many rounds (default: as many as now)."""
    arms = _arms(plan, without)
    proof = prover.cost(plan) if prover is not None and plan.settings else 0.0
    return trials.replicates_seconds(arms, speed.HEADLINE_REPLICATES, rounds or trials.rounds) + proof


def last_resort_rounds(trials: Trials) -> int:
    """Fewer rounds than usual, if no more fit: a verification with a wide interval is better than none."""
    return min(trials.rounds, trials.costs.shape.last_resort_rounds)


def can_verify(trials: Trials, prover: Prover, plan: Plan) -> bool:
    """Whether the verification still fits, with few rounds if need be: what was kept for it was only an estimate."""
    return trials.fits(verification_cost(trials, prover, plan, last_resort_rounds(trials)))


def _arms(plan: Plan, without: Sequence[str]) -> list[Plan]:
    return [plans_of.EMPTY, plans_of.EMPTY, plan, *(plans_of.without(plan, it) for it in without)]


def _fit_rounds(trials: Trials, arms: Sequence[Plan], replicates: int) -> None:
    """Use fewer rounds if the remaining replicates would otherwise not fit.

    The last ones are taken to need as long as the one before them, and a margin. Where even the fewest rounds do not
    fit, blocks are shorter: a replicate that the budget cuts off is lost, and the others with it.
    """
    first, last = replicates == speed.HEADLINE_REPLICATES, replicates <= _LAST_REPLICATES
    late_seconds = replicates * len(arms) * trials.costs.late_seconds if last else 0.0
    margin = _MARGIN if last else 1.0

    def fit(rounds: int) -> bool:
        seconds = trials.replicates_seconds(arms, replicates, rounds, compiles_all=first)
        return trials.fits(margin * (seconds + late_seconds))

    for rounds in (trials.rounds, FEWEST_ROUNDS, LAST_RESORT_ROUNDS, last_resort_rounds(trials)):
        if rounds <= trials.rounds and fit(rounds):
            trials.rounds = rounds
            return
    if last:
        trials.rounds = min(trials.rounds, FEWEST_ROUNDS_OF_A_SHORT_SCRIPT)
        while not fit(trials.rounds) and trials.shorten_blocks():
            pass


def verify(
    trials: Trials, draft: StudyDraft, prover: Prover, plan: Plan, quality: Quality | None
) -> Verification | Failure:
    """Verify a plan by five fresh replicates at 95 %; if these are inconclusive and the budget allows it, by eight.

    ``quality`` is the proof of the whole plan; None if all its levers are exact, whose losses these replicates compare.
    A Failure that is ``cut`` is no failure of the plan: the budget ended first.
    """
    measured = measure_plan(trials, draft, plan)
    if isinstance(measured, Failure):
        return measured
    return measured.with_quality(quality or prover.prove_exact(measured.replicates))


def measure_plan(trials: Trials, draft: StudyDraft, plan: Plan, without: Sequence[str] = ()) -> Verification | Failure:
    """Measure what the objective requires, without a proof of the results.

    In the same replicates the plan is launched without each of the levers ``without``, which shows the gain of each
    next to the others. If the unmodified script and its repeat differed, so that nothing may be claimed, all of it is
    measured once more, on fresh launches, if the budget allows: the first ones are not used.
    """
    first = _measured(trials, draft, plan, without)
    if isinstance(first, Failure) or first.comparison.speed.baseline_agrees:
        return first
    arms = _arms(plan, without)
    if not trials.fits(trials.replicates_seconds(arms, speed.HEADLINE_REPLICATES, last_resort_rounds(trials))):
        return first
    draft.report("verification", "Two copies of the unmodified script differed. Measuring once more, on fresh launches")
    second = _measured(trials, draft, plan, without)
    return first if isinstance(second, Failure) else second.after(first)


def _measured(trials: Trials, draft: StudyDraft, plan: Plan, without: Sequence[str]) -> Verification | Failure:
    """The same, once."""
    arms = _arms(plan, without)

    def goes_on(to_come: int) -> bool:
        _fit_rounds(trials, arms, to_come)
        return True

    def decided(replicates: Sequence[Replicate]) -> bool:
        objective, found = trials.options.objective, _compared(trials, plan, replicates)
        is_open = p99_state(objective, found.candidate_latency) == "open"
        return judge(objective, found).verdict != "inconclusive" and not is_open

    design = Design(
        arms=arms,
        purpose=f"verification {plans_of.key(plans_of.EMPTY)} {plans_of.key(plan)}",
        analyses=(speed.HEADLINE_REPLICATES, MORE_REPLICATES.replicates),
        goes_on=goes_on,
        stage="verification",
    )
    found = replicate(trials, draft, design, decided)
    if found.failure is not None:
        return found.failure
    last = found.replicates[-1].runs
    whole = with_load(_compared(trials, plan, found.replicates), found.replicates, trials.options.objective)
    parts = {it: _part(trials, found.replicates, arms, arm) for arm, it in enumerate(without, start=CANDIDATE + 1)}
    return Verification(whole, last[BASELINE], last[CANDIDATE], found.replicates, parts)


def _part(trials: Trials, replicates: Sequence[Replicate], arms: Sequence[Plan], arm: int) -> Comparison:
    """Compare the plan with itself without a lever, which is the arm ``arm``."""
    confidence = speed.HEADLINE_CONFIDENCE
    found = compare_parts(
        replicates, delta=trials.options.delta, confidence=confidence, reference_arm=arm, candidate_arm=CANDIDATE
    )
    return comparison_of(arms[arm], arms[CANDIDATE], replicates, found, reference_arm=arm)


def _compared(trials: Trials, plan: Plan, replicates: Sequence[Replicate]) -> Comparison:
    """Compare at 95 %, or after an inconclusive first analysis with the share of the second."""
    confidence = (
        speed.HEADLINE_CONFIDENCE if len(replicates) <= speed.HEADLINE_REPLICATES else 1 - MORE_REPLICATES.alpha
    )
    found = compare_replicates(replicates, delta=trials.options.delta, confidence=confidence)
    return comparison_of(plans_of.EMPTY, plan, replicates, found)
