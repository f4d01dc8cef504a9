"""Search for what makes the calls of a model faster with correct outputs.

It is the search of :mod:`hotlap.procedures.search` with other levers and another proof: a call is a step, and the
outputs of the model must stay the same. There is no loader and no backward, so no ceilings are measured.

Engines exclude one another, and levers that change how torch runs a model. Each is compared with the unmodified model,
so that the study lists them all, and the best correct one becomes the plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from hotlap import plan as plans_of
from hotlap.errors import ScriptError
from hotlap.experiment.ceilings import situation_with
from hotlap.experiment.confirm import Confirmation, confirm, first_analysis_cost
from hotlap.experiment.draft import OnProgress, say_nothing
from hotlap.experiment.failures import Failure
from hotlap.experiment.options import Options, check
from hotlap.experiment.prove_outputs import TaskQualityProver
from hotlap.experiment.stages import begin, guarded, opened
from hotlap.levers.api import Lever, inference_levers
from hotlap.levers.support.situations import shapes_vary
from hotlap.objective import gain, judge
from hotlap.procedures.budget import RESERVE_MARGIN, reserve_for_first_answer
from hotlap.procedures.call_advice import call_findings
from hotlap.procedures.forecast import first_forecast
from hotlap.procedures.prospects import Prospect
from hotlap.procedures.screen import Hopeful, Screened, noise_of_a_replicate, screen_one
from hotlap.procedures.search import Search
from hotlap.procedures.verdicts import breaks_p99
from hotlap.procedures.verify import verification_cost
from hotlap.records import (
    Candidate,
    Comparison,
    EngineReport,
    Estimate,
    Failed,
    Finding,
    Kept,
    NoGain,
    NotVerified,
    Outcome,
    Plan,
    Quality,
    QualityLost,
    Refused,
    Run,
    ScriptFacts,
    Situation,
    Study,
    Verdict,
    Workload,
)
from hotlap.study import Journal
from hotlap.trial.executor import Executor
from hotlap.wording import ratio


def infer(
    workload: Workload,
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    journal: Journal | None = None,
    levers: Mapping[str, Lever] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Study:
    """Search for the plan that makes the target's calls fastest with outputs of the required quality.

    Budget, journal, interruption, quick looks and errors are as for :func:`hotlap.procedures.search.tune`.
    """
    known = inference_levers() if levers is None else levers
    check(options, known)
    trials, draft = opened(workload, options, executor, on_progress, journal, clock, kind="inference")
    trials.cuts_replicates = True
    draft.update(quality_level=options.quality)
    search = _InferenceSearch(trials, draft, known)
    return guarded(draft, search.run, search.interrupted)


class _InferenceSearch(Search):
    """Every candidate is compared by itself with the unmodified model; the choice depends on these comparisons."""

    tries_at_once = False
    screens_in_breadth = True

    def _observe(self) -> None:
        machine, observation = begin(self._trials, self._draft)
        self._baseline = observation.run
        self._draft.plan_ahead("baseline", first_forecast(self._trials, len(self._open)))
        self._baseline_situation = self._situation = Situation(
            facts=observation.facts,
            machine=machine,
            account=observation.account,
            device_peak_bytes=observation.run.device_peak_bytes,
            host_peak_bytes=observation.run.host_peak_bytes,
        )
        self._draft.update(findings=call_findings(observation.run))
        self._trials.warm_up_steps = _steps_with_all_shapes(observation.facts)
        self._stages_seconds = self._trials.spent_seconds
        self._trials.reserve_seconds = reserve_for_first_answer(self._trials)
        self._prover = self._outputs = TaskQualityProver(self._trials, self._levers, self._situation)
        refused = "" if self._trials.options.quick else self._outputs.refused_metric()
        if refused:
            raise ScriptError(f"The metric cannot be used. {refused}", remedy="Correct the function of --metric.")

    def _prospects(self, names: Sequence[str]) -> tuple[list[Prospect], list[Outcome]]:
        """In an order for short budgets: ways of forming batches where these are the unit of work, then engines, then
        what changes how torch runs the model, then what compiles for long, then what applies to whatever runs it."""
        found, passed_over = super()._prospects(names)
        found.sort(key=lambda it: self._turn_of(it.lever))
        return found, passed_over

    def _turn_of(self, lever: Lever) -> int:
        facts = self._baseline_situation.facts
        of_batches = facts.generation is not None or (facts.lengths is not None and facts.lengths.whole_passes)
        if lever.kind == "data" and of_batches:
            return 0
        if self._is_of_host(lever.name):
            return 4
        return 3 if lever.starts_slowly else 1 if lever.replaces_torch else 2

    def _screened(self, prospects: Sequence[Prospect], again: bool) -> Hopeful:
        """In a budget engines come first: levers that a process can switch share a launch, and may compile in it."""
        first = [it for it in prospects if self._turn_of(it.lever) <= 1]
        if self._trials.options.budget_seconds is None or len(first) in (0, len(prospects)):
            return super()._screened(prospects, again)
        rest = [it for it in prospects if it not in first]
        found = {**super()._screened(first, again), **super()._screened(rest, again)}
        return dict(sorted(found.items(), key=lambda it: -(it[1][0].gain or 1.0)))

    def _attempt(self, name: str, choices: Sequence[Screened]) -> None:
        """Let a lever compete with the plan, or try it on top of the plan.

        An engine competes, as do ways of forming batches, and so does a lever that changes how torch runs the model if
        an engine already runs it.
        """
        replaces = self._levers[name].replaces_torch or self._forms_batches(name)
        if replaces or (self._has_engine(self._plan) and not self._is_of_host(name)):
            self._compete(name, choices)
        else:
            super()._attempt(name, choices)

    def _compete(self, name: str, choices: Sequence[Screened]) -> None:
        """Compare each setting with the unmodified model, and keep the best correct one.

        In a budget, those are left out that a first measurement shows far behind the plan.
        """
        outcomes: list[Outcome] = []
        behind: list[Outcome] = []
        for number, choice in enumerate(choices):
            choice = self._screened_if_short(choice)
            if (reason := self._far_behind(choice)) is not None:
                verdict = NoGain(metric=self._trials.options.objective.metric, reason=reason)
                behind.append(
                    Outcome(lever=name, setting=choice.setting, verdict=verdict, trial_seconds=choice.seconds)
                )
                continue
            outcome = self._outcome_against_unmodified(name, choice)
            if outcome is None:
                self._left_to_try[name] = choices[number:]
                break
            outcomes.append(outcome)
        kept = self._draft.outcome_of(name)
        is_kept = kept is not None and isinstance(kept.verdict, Kept)
        if (outcomes or behind) and not is_kept:
            self._draft.decide(max(outcomes, key=_merit) if outcomes else behind[0])
        elif not outcomes and kept is None:
            self._note_seen(name, choices[0], plans_of.with_setting(self._plan, choices[0].setting))
        self._close_if_final(name)

    def _outcome_against_unmodified(self, name: str, choice: Screened) -> Outcome | None:
        """The outcome of one setting, which becomes the plan if it is right and better; None if no time was left."""
        verified = self._verified
        candidate = plans_of.with_setting(self._host_part(self._plan), choice.setting)
        with self._against_unmodified() as held:
            way = self._way(candidate)
            if way is None or (way.straight and held.settings):  # the plan must still be verified
                return None
            self._trials.set_rounds(way.rounds)
            # A trial has the arms of the verification: in a budget the latter alone, of what looked best, saves it.
            straight = way.straight or (self._trials.options.budget_seconds is not None and not held.settings)
            self._trials.reserve_seconds = 0.0 if straight else self._trials.reserve_seconds
            outcome, run = (self._try_straight if straight else self._try)(name, choice, candidate)
        if outcome is not None and isinstance(outcome.verdict, Kept) and run is not None:
            beaten = self._beaten_by_plan(name, outcome.verdict, candidate)
            if beaten:
                verdict = NoGain(comparison=outcome.verdict.comparison, reason=beaten)
                outcome = msgspec.structs.replace(outcome, verdict=verdict)
            else:
                self._replace_plan(outcome, candidate, run)
        if self._plan != candidate:
            self._verified = verified  # what was verified meanwhile is not what the plan falls back to
        return outcome

    def _screened_if_short(self, choice: Screened) -> Screened:
        """A first measurement of a setting that had none, if a budget is short and a plan is held already."""
        if self._trials.options.budget_seconds is None or choice.gain is not None or not self._plan.settings:
            return choice
        reserve = RESERVE_MARGIN * verification_cost(self._trials, self._prover, self._plan)
        with self._against_unmodified():
            self._trials.reserve_seconds = reserve
            lever = self._levers[choice.setting.lever]
            found = screen_one(self._trials, self._draft, self._plan, lever, choice.setting)
        return choice if isinstance(found, Failure) else found

    def _far_behind(self, choice: Screened) -> str | None:
        """A sentence if one measurement shows a setting behind the plan by more than its noise explains."""
        if self._trials.options.budget_seconds is None or choice.gain is None or not self._plan.settings:
            return None
        known = next((it.comparison for it in self._draft.study.candidates if it.plan == self._plan), None)
        held = gain(self._trials.options.objective, known) if known is not None else None
        if held is None or choice.gain * (1 + 2 * noise_of_a_replicate(self._noise)) >= held.value:
            return None
        shown = plans_of.describe(self._plan.settings[-1])
        return (
            f"A first measurement (one replicate, no interval) showed {ratio(choice.gain)}, and {shown} gives "
            f"{ratio(held.value)}."
        )

    @contextmanager
    def _against_unmodified(self) -> Iterator[Plan]:
        """Try on top of no plan; gives the held one."""
        kept, used = self._plan, self._used
        self._plan, self._used = plans_of.EMPTY, {}
        try:
            yield kept
        finally:
            self._plan, self._used = kept, used

    def _beaten_by_plan(self, name: str, verdict: Kept, candidate: Plan) -> str:
        """A sentence if the plan is not worse than a candidate.

        That is judged by their intervals or, if these overlap, by replicates of both.
        """
        if not self._plan.settings:
            return ""
        objective = self._trials.options.objective
        held = plans_of.describe(self._plan.settings[-1])
        known = next((it.comparison for it in self._draft.study.candidates if it.plan == self._plan), None)
        mine, theirs = gain(objective, verdict.comparison), gain(objective, known) if known is not None else None
        if mine is not None and theirs is not None and (mine.low > theirs.high or mine.high < theirs.low):
            return "" if mine.low > theirs.high else f"{held} gives more."
        if not self._trials.fits(first_analysis_cost(self._trials, self._plan, candidate, self._trials.rounds)):
            return f"The budget left no time for a comparison with {held}."
        duel = confirm(self._trials, self._draft, self._plan, candidate, lever=name)
        if isinstance(duel, Failure) or judge(objective, duel.comparison).verdict != "better":
            return f"It was not shown to be better than {held}."
        return ""

    def _replace_plan(self, outcome: Outcome, candidate: Plan, run: Run) -> None:
        added = plans_of.describe(candidate.settings[-1])
        for it in self._plan.settings:
            if it not in candidate.settings and it.lever != outcome.lever:
                self._give_up(it.lever, f"{added} gives more, and takes its place.", None)
        self._draft.decide(outcome, plan=candidate)
        self._plan = candidate
        self._situation = situation_with(self._baseline_situation, candidate, run, self._levers)
        self._open = [it for it in self._open if self._is_of_host(it)]

    def _close_if_final(self, name: str) -> None:
        super()._close_if_final(name)
        if self._levers[name].replaces_torch and self._draft.outcome_of(name) is not None:
            self._open = [it for it in self._open if it != name]

    def _is_of_host(self, name: str) -> bool:
        """Whether a lever applies to whatever runs the model."""
        return self._levers[name].kind in ("host", "data")

    def _forms_batches(self, name: str) -> bool:
        """Whether the first lever of a plan forms batches: each way of doing so is listed, with its comparison."""
        return self._levers[name].kind == "data" and not self._plan.settings

    def _host_part(self, plan: Plan) -> Plan:
        return Plan(settings=tuple(it for it in plan.settings if self._is_of_host(it.lever)))

    def _has_engine(self, plan: Plan) -> bool:
        return any(self._levers[it.lever].replaces_torch for it in plan.settings)

    def _try(self, name: str, choice: Screened, candidate: Plan) -> tuple[Outcome | None, Run | None]:
        if (refused := self._refused_by_outputs(choice, candidate)) is not None:
            return refused, None
        outcome, run = super()._try(name, choice, candidate)
        if not self._plan.settings:
            self._note_candidate(outcome, candidate, run)
        return outcome, run

    def _try_straight(self, name: str, choice: Screened, candidate: Plan) -> tuple[Outcome | None, Run | None]:
        if (refused := self._refused_by_outputs(choice, candidate)) is not None:
            return refused, None
        outcome, run = super()._try_straight(name, choice, candidate)
        self._note_candidate(outcome, candidate, run)
        return outcome, run

    def _refused_by_outputs(self, choice: Screened, candidate: Plan) -> Outcome | None:
        """The outcome of a plan whose outputs are not as required; None if they are, or if that stays open.

        In a budget this comes first: it takes one launch where the timing takes fifteen, which then remain for a plan
        that is right. Without one all plans are timed, for the table of candidates.
        """
        if self._trials.options.budget_seconds is None:
            return None
        before = self._trials.spent_seconds
        self._draft.report("parity", f"Are the outputs right with {plans_of.describe(choice.setting)}?")
        quality = self._outputs.prove(candidate)
        if isinstance(quality, Failure):
            verdict: Verdict = Failed(ending=quality.ending, reason=quality.reason)
        elif quality.verdict == "lost":
            of_speed = self._trials.options.goal.is_of_speed
            verdict = QualityLost(speedup=choice.gain if of_speed else None, reason=quality.text)
            engine = self._outputs.engine_of(candidate)
            refused = Refused(plan=candidate, quality=quality, gain=choice.gain, engine=engine)
            self._draft.update(refused=(*self._draft.study.refused, refused))
        else:
            return None
        return Outcome(
            lever=choice.setting.lever,
            setting=choice.setting,
            verdict=verdict,
            trial_seconds=self._trials.spent_seconds - before,
        )

    def _verdict(self, result: Confirmation, candidate: Plan) -> Verdict:
        """One more reason against a candidate: only with it, calls exceed the required p99."""
        return breaks_p99(result.comparison, self._trials.options.goal) or super()._verdict(result, candidate)

    def _note_candidate(self, outcome: Outcome | None, plan: Plan, run: Run | None) -> None:
        comparison = getattr(outcome.verdict, "comparison", None) if outcome is not None else None
        if comparison is not None:
            self._add_candidate(plan, comparison, run.engine if run is not None else None)

    def _add_candidate(self, plan: Plan, comparison: Comparison, engine: EngineReport | None) -> None:
        found = Candidate(plan=plan, comparison=comparison, engine=self._outputs.engine_of(plan) or engine)
        others = [it for it in self._draft.study.candidates if it.plan != plan]
        self._draft.update(candidates=(*others, found))

    def _verify(self) -> None:
        super()._verify()
        study = self._draft.study
        if study.verification is not None and study.verification.candidate.settings:
            self._add_candidate(study.verification.candidate, study.verification, None)

    def _find_with_outcomes(self) -> None:
        """A lever that changes rounding, but neither outputs nor time, probably did not run at all."""
        found: list[Finding] = []
        if self._situation.facts.generation is not None:
            return  # rounding need not change a token
        for it in self._draft.study.outcomes:
            verdict = it.verdict
            if not (isinstance(verdict, NoGain) and verdict.comparison is not None and it.setting is not None):
                continue
            owes = self._prover.proof_for(it.setting)
            says_itself = self._levers[it.lever].replaces_torch  # what the engine's own graph shows is in its proof
            if owes == "exact" or says_itself or not self._changes_no_time(verdict.comparison):
                continue
            plan = plans_of.with_setting(plans_of.EMPTY, it.setting)
            quality = self._prover.prove(plan) if self._trials.fits(self._prover.cost(plan)) else None
            if quality is not None and not isinstance(quality, Failure) and quality.verdict == "exact":
                found.append(_fallback(it.lever, quality))
        if found:
            self._draft.update(findings=(*self._draft.study.findings, *found))

    def _changes_no_time(self, comparison: Comparison) -> bool:
        """Whether the whole interval is within the smallest gain worth having, in both directions."""
        ratio, most = comparison.speed.speedup, 1 + self._trials.options.delta
        return 1 / most < ratio.low and ratio.high < most


def _steps_with_all_shapes(facts: ScriptFacts) -> int:
    """After how many calls every shape of the inputs has occurred, where they differ: kernels and graphs are chosen for
    each shape when it first occurs, which is no part of a call's usual time."""
    varies = any(map(shapes_vary, facts.models))
    whole_passes = facts.lengths is not None and facts.lengths.whole_passes
    return facts.inputs if varies and not whole_passes else 0


def _merit(outcome: Outcome) -> tuple[int, float]:
    """Which of a lever's settings to report: a correct one, else the fastest refused one, else any."""
    rank = {Kept: 3, NoGain: 2, QualityLost: 1, NotVerified: 1}.get(type(outcome.verdict), 0)
    comparison = getattr(outcome.verdict, "comparison", None)
    return rank, comparison.speed.speedup.value if comparison is not None else 0.0


def _fallback(lever: str, quality: Quality) -> Finding:
    return Finding(
        rule="silent-fallback",
        kind="risk",
        share=Estimate(value=0.0, low=0.0, high=0.0),
        title=f"{lever} changed neither time nor outputs: the model probably ran without it.",
        evidence=(quality.text,),
        remedy="Look for warnings in the run's output; the lever may not apply to this model.",
    )
