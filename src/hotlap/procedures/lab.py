"""The three-run lab: the unmodified script, with mixed precision, and with mixed precision and compile.

A classroom experiment made sound: the three take turns in the same replicates, and both changes must produce the same
results. Its interpretation relies on a rule of thumb, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hotlap import plan as plans_of
from hotlap.diagnose.rules.small_mixed_precision_gain import RULE_OF_THUMB, bottleneck
from hotlap.errors import BudgetError
from hotlap.experiment.comparing import compare_replicates, comparison_of
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.failures import Failure
from hotlap.experiment.options import Options, check
from hotlap.experiment.prove import ParityProver, Prover
from hotlap.experiment.replicates import Design, anything, replicate
from hotlap.experiment.stages import begin, guarded, opened
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever, all_levers
from hotlap.measure import speed
from hotlap.procedures.budget import ADVICE_MARGIN, rounded_up
from hotlap.procedures.forecast import comparison_forecast, proof_of_plans
from hotlap.procedures.verdicts import no_gain, of_quality
from hotlap.records import (
    Comparison,
    Failed,
    Kept,
    Outcome,
    PhaseAccount,
    Plan,
    Replicate,
    Situation,
    Skipped,
    SpeedComparison,
    Study,
    Verdict,
    Workload,
)
from hotlap.study import Journal
from hotlap.trial.executor import Executor
from hotlap.wording import share

MIXED, COMPILE = "mixed-precision", "compile"
BOTH = "mixed-precision + compile"

_REPLICATES = 5
_FEWEST_REPLICATES = 3


@dataclass(frozen=True, slots=True)
class _Arm:
    """One run besides the unmodified script."""

    name: str
    plan: Plan


def run_lab(
    workload: Workload,
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    journal: Journal | None = None,
    levers: Mapping[str, Lever] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Study:
    """Compare the three; the study's ``status_text`` is the interpretation, its plan the fastest with the same results.

    Raises as :func:`hotlap.procedures.search.tune` does.
    """
    known = all_levers() if levers is None else levers
    check(options, known)
    trials, draft = opened(workload, options, executor, on_progress, journal, clock)
    return guarded(draft, lambda: _compare(trials, draft, known), lambda: draft.close("interrupted"))


def reading(phases: PhaseAccount, mixed: SpeedComparison | None) -> str:
    """Interpret the gain of mixed precision, and name the measured bottleneck."""
    where = f"In the unmodified script, {bottleneck(phases)}."
    if mixed is None:
        return where
    found = mixed.speedup
    gain = f"Mixed precision: {found.value:.2f}x ({found.low:.2f} to {found.high:.2f})."
    rule = f"As a rule of thumb, a gain under {share(RULE_OF_THUMB - 1)} means that the bottleneck is elsewhere."
    if found.high < RULE_OF_THUMB:
        return f"{gain} {rule} {where}"
    if found.low > RULE_OF_THUMB:
        return f"{gain} {rule} This is more: the multiplications were the bottleneck. {where}"
    return f"{gain} {rule} The interval contains both. {where}"


def _compare(trials: Trials, draft: StudyDraft, levers: Mapping[str, Lever]) -> None:
    machine, observation = begin(trials, draft)
    situation = Situation(
        facts=observation.facts,
        machine=machine,
        account=observation.account,
        device_peak_bytes=observation.run.device_peak_bytes,
        host_peak_bytes=observation.run.host_peak_bytes,
    )
    prover = ParityProver(trials, levers, situation)
    arms = _arms(draft, situation, levers)
    arms, replicates = _take_replicates(trials, draft, prover, arms)
    verdicts = _verdicts(trials, draft, prover, arms, replicates)
    kept = [it for it in verdicts.values() if isinstance(it, Kept)]
    best = max((it.comparison for it in kept), key=lambda it: it.speed.speedup.value, default=None)
    if best is not None:
        draft.update(plan=best.candidate)
    draft.close("finished", reading(observation.account, _speed(verdicts.get(MIXED))))


def _arms(draft: StudyDraft, situation: Situation, levers: Mapping[str, Lever]) -> list[_Arm]:
    """The possible runs; a lever that is impossible here is skipped with its reason."""
    arms: list[_Arm] = []
    plan = plans_of.EMPTY
    for name in (MIXED, COMPILE):
        lever = levers[name]
        obstacle = lever.obstacle(situation)
        settings = () if obstacle else lever.candidates(situation)
        if not settings:
            skipped = obstacle or Skipped(reason="No setting of it fits this script and machine.")
            draft.decide(Outcome(lever=name, verdict=skipped))
            continue
        plan = plans_of.with_setting(plan, settings[0])
        arms.append(_Arm(BOTH if len(plan.settings) > 1 else name, plan))
    return arms


def _take_replicates(
    trials: Trials, draft: StudyDraft, prover: Prover, arms: Sequence[_Arm]
) -> tuple[list[_Arm], Sequence[Replicate]]:
    """The replicates of all arms; if an arm fails, they begin again without it."""
    running = list(arms)
    while running:
        plans = [plans_of.EMPTY, plans_of.EMPTY, *(it.plan for it in running)]
        replicates = _affordable_replicates(trials, plans)
        proof = proof_of_plans(prover, [it.plan for it in running])
        draft.plan_ahead("baseline", comparison_forecast(trials, plans, replicates, proof))
        names = ", ".join(it.name for it in running)
        design = Design(
            arms=plans,
            purpose=f"lab {names}",
            analyses=(replicates,),
            accept=anything,
            compares=False,
            label=f"The unmodified script, {names}",
        )
        found = replicate(trials, draft, design)
        if found.failure is None:
            return running, found.replicates
        failed = running.pop(max(0, found.failure.arm - 2))
        verdict = Failed(ending=found.failure.ending, reason=found.failure.reason)
        draft.decide(Outcome(lever=failed.name, setting=failed.plan.settings[-1], verdict=verdict))
    return running, ()


def _affordable_replicates(trials: Trials, plans: Sequence[Plan]) -> int:
    trials.choose_rounds(1)
    for replicates in (_REPLICATES, _FEWEST_REPLICATES):
        cost = trials.replicates_seconds(plans, replicates, trials.rounds)
        if trials.fits(cost):
            return replicates
    needed = rounded_up(trials.spent_seconds + ADVICE_MARGIN * cost)
    raise BudgetError(
        f"The budget is too small for the lab: this script needs about {needed:.0f} s.",
        remedy=f"Give at least --budget {needed:.0f}s, or none.",
        needed_seconds=needed,
    )


def _verdicts(
    trials: Trials, draft: StudyDraft, prover: Prover, arms: Sequence[_Arm], replicates: Sequence[Replicate]
) -> dict[str, Verdict]:
    if not replicates:
        return {}
    delta = trials.options.delta
    found = [
        compare_replicates(replicates, delta=delta, confidence=speed.HEADLINE_CONFIDENCE, arms=(0, 1, arm))
        for arm in range(2, 2 + len(arms))
    ]
    verdicts: dict[str, Verdict] = {}
    held = speed.hold_to_family(found, alpha=1 - speed.HEADLINE_CONFIDENCE)
    for index, (arm, its_speed) in enumerate(zip(arms, held, strict=True)):
        comparison = comparison_of(plans_of.EMPTY, arm.plan, replicates, its_speed, candidate_arm=2 + index)
        verdict = _verdict(trials, draft, prover, comparison)
        verdicts[arm.name] = verdict
        setting = arm.plan.settings[0] if len(arm.plan.settings) == 1 else None
        report = replicates[0].runs[2 + index].compile
        compiled = report if report.seconds or report.graphs else None
        draft.decide(Outcome(lever=arm.name, setting=setting, verdict=verdict, compile=compiled))
    return verdicts


def _verdict(trials: Trials, draft: StudyDraft, prover: Prover, comparison: Comparison) -> Verdict:
    """Prove all runs, also those that are not faster: the results are half of the experiment."""
    draft.report("parity", "Does it still produce the same results?")
    quality = prover.prove(comparison.candidate)
    if isinstance(quality, Failure):
        return Failed(ending=quality.ending, reason=quality.reason)
    comparison = msgspec.structs.replace(comparison, quality=quality)
    if quality.verdict != "lost" and comparison.speed.verdict != "faster":
        return no_gain(comparison, trials.options.goal)
    return of_quality(comparison, quality, trials.options.accept_unverified)


def _speed(verdict: Verdict | None) -> SpeedComparison | None:
    comparison = getattr(verdict, "comparison", None)
    return comparison.speed if isinstance(comparison, Comparison) else None
