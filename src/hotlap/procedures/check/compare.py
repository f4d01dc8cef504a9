"""The trials of a check: observe, time both sides in the same replicates until an analysis decides, compare losses."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from hotlap import plan as plans_of
from hotlap.errors import HotlapError, ScriptError, UsageError
from hotlap.experiment.comparing import BASELINE, CANDIDATE, comparison_of, largest_peak_bytes
from hotlap.experiment.costs import FEWEST_ROUNDS
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.failures import Failure
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.observe import Observation
from hotlap.experiment.options import Options
from hotlap.experiment.options import check as check_options
from hotlap.experiment.prove import ParityProver
from hotlap.experiment.replicates import ANALYSES, Design, replicate, timed_out
from hotlap.experiment.stages import begin, blank_study
from hotlap.experiment.trials import Arm, Trials
from hotlap.levers.api import Lever, all_levers
from hotlap.machine.label import machine_label
from hotlap.measure import speed
from hotlap.procedures.check.numbers import TwoScripts, unless_noisy
from hotlap.procedures.check.phases import phase_shifts
from hotlap.procedures.check.rule import analyse, is_decided, limit_of
from hotlap.procedures.check.wording import numbers_text, over_budget_text, overall, speed_text
from hotlap.procedures.forecast import comparison_forecast, proof_launches, proof_of_plans
from hotlap.records import (
    Against,
    Check,
    CheckCost,
    CheckVerdict,
    Completed,
    Disturbance,
    Machine,
    NumbersCheck,
    Parity,
    QualityVerdict,
    Replicate,
    Sides,
    Situation,
    SpeedCheck,
    TimedOut,
    Workload,
)
from hotlap.redact import redacted
from hotlap.study import CHECK, Journal
from hotlap.trial.executor import Executor

_VERDICTS: Mapping[QualityVerdict, CheckVerdict] = {
    "exact": "passed", "within": "passed", "lost": "failed", "not-verified": "inconclusive"
}  # fmt: skip


def check(
    workload: Workload,
    against: Against,
    sides: Sides,
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    speed_only: bool = False,
    levers: Mapping[str, Lever] | None = None,
    journal: Journal | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Check:
    """Compare the present side with the other one on this machine.

    ``options.delta`` is the smallest slowdown that counts. With a journal the check is stored as a study, for ``hotlap
    history``. A present script that fails is an answer. A budget too small for the first analysis and a launch that
    timed out are *inconclusive*. Raises :class:`HotlapError` if the other side fails by itself, and :class:`UsageError`
    for invalid options.
    """
    known = all_levers() if levers is None else levers
    check_options(options, known)
    trials = Trials(sides.before, options, JournaledExecutor(executor, journal, clock=clock))
    blank = msgspec.structs.replace(blank_study(workload, options, journal), kind="check")
    draft = StudyDraft(blank, trials, journal, on_progress)
    checker = _Checker(workload, against, sides, trials, draft, known, speed_only=speed_only)
    try:
        return checker.run()
    except KeyboardInterrupt:
        draft.close("interrupted")
        raise
    except HotlapError as error:
        draft.close("script-failed", error.what)
        raise


class _Checker:
    def __init__(
        self,
        workload: Workload,
        against: Against,
        sides: Sides,
        trials: Trials,
        draft: StudyDraft,
        levers: Mapping[str, Lever],
        *,
        speed_only: bool,
    ) -> None:
        self._workload = workload
        self._against = against
        self._sides = sides
        self._trials = trials
        self._draft = draft
        self._levers = levers
        self._speed_only = speed_only
        self._replicates: Sequence[Replicate] = ()
        self._cost: CheckCost | None = None
        self._ended_soon = False
        self._proof_launches = proof_launches(0, 0.0)

    def run(self) -> Check:
        try:
            machine, observation = begin(self._trials, self._draft)
        except ScriptError as error:
            return self._not_measured(error)
        self._refuse_mixture(observation)
        self._compare_only_here(machine)
        proof = None if self._speed_only else self._proof(machine, observation)
        seconds = 0.0 if proof is None else proof.cost()
        self._proof_launches = proof_launches(0 if proof is None else proof.launches, seconds)
        if not self._can_pay(seconds):
            return self._answer(machine, self._over_budget(), None)
        found = self._time()
        self._trials.reserve_seconds = 0.0
        comparable = bool(self._replicates) or (self._ended_soon and self._against.kind == "revision")
        numbers = self._numbers(proof) if proof is not None and comparable else None
        return self._answer(machine, found, numbers)

    # -- what cannot be compared ---------------------------------------------------------------

    def _not_measured(self, error: ScriptError) -> Check:
        run = self._draft.study.baseline
        if run is not None and isinstance(run.ending, TimedOut):
            text = f"Nothing was compared: {error.what} {error.remedy}"
            found = SpeedCheck(verdict="inconclusive", text=text, limit=self._limit)
            return self._answer(self._draft.study.machine, found, None)
        if self._against.kind == "plan":  # both sides are the current script
            found = SpeedCheck(verdict="failed", text=f"{error.what} {error.remedy}", limit=self._limit)
            return self._answer(self._draft.study.machine, found, None)
        raise HotlapError(
            f"The script at {self._against.name} cannot be measured. {error.what}",
            where=error.where,
            remedy=f"Compare with a revision at which it runs. {error.remedy}",
        ) from error

    def _refuse_mixture(self, observation: Observation) -> None:
        """Raise :class:`UsageError` if the old version imported present modules, which would compare equal."""
        names = observation.run.imported_from_original
        if not names:
            return
        raise UsageError(
            f"At {self._against.name} the script still imports the current {', '.join(names[:3])}.",
            where=self._original,
            remedy="They are installed in place. Put their folder on the path, as in `PYTHONPATH=$PWD/src hotlap check "
            "...`: a path inside the repository is taken to mean the same folder at that revision.",
        )

    @property
    def _original(self) -> str:
        checkout = self._sides.before.checkout
        return checkout.original if checkout is not None else self._sides.before.directory

    def _compare_only_here(self, machine: Machine) -> None:
        """Drop a gain that was recorded on another machine: the ratio depends on the machine too."""
        recorded = self._against.recorded
        here = machine_label(machine)
        if self._against.kind != "plan":
            return
        if recorded is None:
            self._draft.warn(
                f"The plan of {self._against.name} records no gain, so the check only requires that it costs no speed."
            )
        elif recorded.machine != here:
            there = recorded.machine or "an unknown machine"
            self._draft.warn(
                f"The gain of {recorded.speedup.value:.2f}x was recorded on {there}, and this is {here or 'another'}: "
                "the check only requires that the plan costs no speed."
            )
            self._against = msgspec.structs.replace(self._against, recorded=None)
        elif recorded.torch_version not in ("", _torch_version(machine)):
            then = f"with torch {recorded.torch_version}, and this is torch {_torch_version(machine)}"
            self._draft.warn(f"The gain was recorded {then}.")

    # -- budget --------------------------------------------------------------------------------

    def _can_pay(self, proof_seconds: float) -> bool:
        """Report the cost of the check, and reserve the seconds of its proof; False if the budget is too small."""
        trials, first, last = self._trials, speed.ANALYSES[0].replicates, speed.ANALYSES[-1].replicates
        trials.reserve_seconds = proof_seconds
        trials.choose_rounds(1)
        if not trials.fits(first * self._set_seconds):
            trials.set_rounds(FEWEST_ROUNDS)
        before = trials.spent_seconds + proof_seconds
        self._cost = cost = CheckCost(
            least_seconds=before + first * self._set_seconds, most_seconds=before + last * self._set_seconds
        )
        self._plan_ahead(first)
        text = f"The first analysis is due after {cost.least_seconds:.0f} s, the last after {cost.most_seconds:.0f} s"
        self._draft.report("trial", text, replicates_planned=first)
        budget = trials.options.budget_seconds
        if budget is not None and cost.least_seconds <= budget < cost.most_seconds:
            self._draft.warn(
                f"The budget of {budget:.0f} s may end before the last analysis: all {last} replicates take about "
                f"{cost.most_seconds:.0f} s."
            )
        return trials.fits(first * self._set_seconds)

    def _plan_ahead(self, replicates: int) -> None:
        """Plan so many replicates, and the comparison of results."""
        proof = self._proof_launches
        plans = [self._sides.before_plan, self._sides.before_plan, self._sides.now_plan]
        self._draft.plan_ahead("trial", comparison_forecast(self._trials, plans, replicates, proof))

    def _is_decided(self, replicates: Sequence[Replicate]) -> bool:
        decided = is_decided(replicates, self._against.recorded, self._trials.options.delta)
        following = next((it for it in ANALYSES if it > len(replicates)), 0)
        if following and not decided:
            self._plan_ahead(following - len(replicates))
        return decided

    def _over_budget(self) -> SpeedCheck:
        budget, cost = self._trials.options.budget_seconds, self._cost
        assert budget is not None and cost is not None
        text = over_budget_text(cost, budget, self._disturbance_of("account"))
        return SpeedCheck(verdict="inconclusive", text=text, limit=self._limit)

    def _disturbance_of(self, measured: str) -> Disturbance | None:
        return next((it for it in self._draft.study.disturbances if it.measured == measured), None)

    @property
    def _set_seconds(self) -> float:
        plans = [self._sides.before_plan, self._sides.before_plan, self._sides.now_plan]
        return self._trials.costs.of_replicate(plans, self._trials.rounds)

    # -- speed ---------------------------------------------------------------------------------

    @property
    def _limit(self) -> float:
        return limit_of(self._trials.options.delta)

    def _time(self) -> SpeedCheck:
        """Take replicates until an analysis decides, the last is done, or the budget ends."""
        delta, recorded, sides = self._trials.options.delta, self._against.recorded, self._sides
        before, now = Arm(sides.before_plan), Arm(sides.now_plan, workload=sides.now)
        design = Design(
            arms=(before, before, now), purpose="check", measured="speed", repeats_time_outs=True, adapts_rounds=True
        )
        taken = replicate(self._trials, self._draft, design, self._is_decided)
        if taken.failure is not None:
            return self._failed(taken.failure, again=taken.timed_out_again)
        self._replicates = taken.replicates
        verdict, judged, at_least, found = analyse(self._replicates, recorded, delta)
        self._draft.judge("speed", [run for it in self._replicates for run in it.runs])
        phases, busy = phase_shifts(self._replicates), self._disturbance_of("speed")
        return SpeedCheck(
            verdict=verdict,
            text=speed_text(
                *(verdict, self._against, delta, found, judged, at_least),
                short=taken.unfinished,
                phases=phases,
                disturbance=busy,
            ),
            limit=self._limit,
            judged=judged,
            at_least=at_least,
            comparison=found,
            phases=phases,
        )

    def _failed(self, failure: Failure, *, again: bool) -> SpeedCheck:
        """Handle an arm without numbers: a failure of the present side is an answer."""
        if timed_out(failure) and not (failure.arm == CANDIDATE and again):
            side = "the current script" if failure.arm == CANDIDATE else self._against.name
            text = f"The speed could not be compared: in a trial of {side}: {failure.reason}"
            return SpeedCheck(verdict="inconclusive", text=text, limit=self._limit)
        if failure.arm != CANDIDATE:
            raise HotlapError(
                f"The other side of the comparison, {self._against.name}, failed while it was timed. {failure.reason}",
                remedy="Run the check again; if it fails again, make that script run without hotlap first.",
            )
        if isinstance(failure.ending, Completed):
            self._ended_soon = True
            text = f"The speed could not be compared: {failure.reason} Let it train longer."
            return SpeedCheck(verdict="inconclusive", text=text, limit=self._limit)
        now = "With the plan the script" if self._against.kind == "plan" else "The current script"
        return SpeedCheck(
            verdict="failed", text=f"{now} does not run to completion: {failure.reason}", limit=self._limit
        )

    # -- numbers -------------------------------------------------------------------------------

    def _proof(self, machine: Machine, observation: Observation) -> TwoScripts | _PlanProof:
        if self._against.kind == "revision":
            return TwoScripts(self._trials, self._sides)
        situation = Situation(
            facts=observation.facts,
            machine=machine,
            account=observation.account,
            device_peak_bytes=observation.run.device_peak_bytes,
            host_peak_bytes=observation.run.host_peak_bytes,
        )
        return _PlanProof(ParityProver(self._trials, self._levers, situation), self._against)

    def _numbers(self, proof: TwoScripts | _PlanProof) -> NumbersCheck:
        self._draft.report("parity", "Does it still produce the same results?")
        quality = proof.prove(self._replicates)
        if isinstance(quality, Failure):
            verdict: CheckVerdict = "inconclusive" if timed_out(quality) else "failed"
            return NumbersCheck(verdict=verdict, text=quality.reason)
        quality = unless_noisy(quality)
        text = numbers_text(self._against, quality)
        return NumbersCheck(verdict=_VERDICTS[quality.verdict], text=text, quality=quality)

    # -- answer --------------------------------------------------------------------------------

    def _answer(self, machine: Machine, found: SpeedCheck, numbers: NumbersCheck | None) -> Check:
        verdict, text = overall(found, numbers)
        remarks = found.comparison.remarks if found.comparison is not None and found.comparison.baseline_agrees else ()
        check = Check(
            verdict=verdict,
            text=text,
            workload=redacted(self._workload),
            against=self._against,
            speed=found,
            numbers=numbers,
            delta=self._trials.options.delta,
            machine=machine_label(machine),
            torch_version=_torch_version(machine),
            before_peak_bytes=largest_peak_bytes(self._replicates, BASELINE),
            now_peak_bytes=largest_peak_bytes(self._replicates, CANDIDATE),
            spent_seconds=self._trials.spent_seconds,
            budget_seconds=self._trials.options.budget_seconds,
            cost=self._cost,
            disturbances=self._draft.study.disturbances,
            warnings=(*self._draft.study.warnings, *remarks),
            directory=self._draft.study.directory,
        )
        self._keep(check)
        return check

    def _keep(self, check: Check) -> None:
        """Store the answer next to the study, and in the study what ``hotlap history`` shows."""
        comparison = None
        if check.speed.comparison is not None:
            comparison = comparison_of(
                self._sides.before_plan, self._sides.now_plan, self._replicates, check.speed.comparison
            )
            quality = check.numbers.quality if check.numbers is not None else None
            comparison = msgspec.structs.replace(comparison, quality=quality)
        self._draft.update(check_verdict=check.verdict, verification=comparison)
        self._draft.attach(CHECK, check)
        self._draft.close("finished", check.text)


class _PlanProof:
    """The proof that the recorded plan's levers require; timing runs prove exact ones."""

    def __init__(self, prover: ParityProver, against: Against) -> None:
        self._prover = prover
        self._plan = against.plan
        self._exact = all(prover.proof_for(it) == "exact" for it in self._plan.settings)
        self.launches = proof_of_plans(prover, [self._plan]).count

    def cost(self) -> float:
        """The seconds of its launches."""
        return self._prover.cost(self._plan)

    def prove(self, replicates: Sequence[Replicate]) -> Parity | Failure:
        """Compare the plan with the unmodified script."""
        return self._prover.prove_exact(replicates) if self._exact else self._prover.prove(self._plan)


def _torch_version(machine: Machine) -> str:
    return dict(machine.library_versions).get("torch", "")


def without_plan(workload: Workload, against: Against) -> Sides:
    """The sides of a check of a recorded plan: the present script without it, and with it."""
    return Sides(before=workload, before_plan=plans_of.EMPTY, now=workload, now_plan=against.plan)
