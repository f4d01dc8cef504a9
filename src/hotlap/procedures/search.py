"""The search: observe, measure ceilings, look for causes, try levers, leave out the idle, verify.

It is greedy. A lever that proved itself becomes part of the plan that the next one is tried on top of, since levers
interact: what a faster model gains, a slow loader may eat. What is known whenever the search is ended is an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from hotlap import plan as plans_of
from hotlap.diagnose.profile import Profile
from hotlap.experiment.ceilings import measure_ceilings, note_bounds, situation_with
from hotlap.experiment.comparing import launch_noise
from hotlap.experiment.confirm import Confirmation, confirm
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.findings import note_findings
from hotlap.experiment.observe import account_of
from hotlap.experiment.options import Options, check, chosen
from hotlap.experiment.profiled_launch import take_profile
from hotlap.experiment.prove import ParityProver, Prover
from hotlap.experiment.stages import begin, guarded, opened
from hotlap.experiment.trials import Failure, Trials
from hotlap.levers.api import Lever, all_levers
from hotlap.measure import speed
from hotlap.measure.parity.curves import loss_curves
from hotlap.objective import judge
from hotlap.procedures.ablate import ablate
from hotlap.procedures.budget import (
    RESERVE_MARGIN,
    Way,
    affordable_way,
    budget_for_a_proof,
    budget_for_the_rest,
    reserve_for,
    reserve_for_first_answer,
    reserve_while_bounding,
    share_for_causes,
)
from hotlap.procedures.screen import Prospect, Screened, look_at, looks, noise_of_a_set, prospects_of, screen
from hotlap.procedures.verdicts import no_gain, no_time, of_quality, quick_look_text, seen, why_given_up
from hotlap.procedures.verify import Verification, can_verify, measure_plan, verification_cost, verify
from hotlap.records import (
    Comparison,
    Failed,
    Finding,
    Kept,
    NoGain,
    NotVerified,
    Outcome,
    Plan,
    Quality,
    QualityLost,
    Run,
    Seen,
    Skipped,
    Study,
    Verdict,
    Workload,
)
from hotlap.study import Journal
from hotlap.trial.executor import Executor

_Answer = TypeVar("_Answer")

FAMILY_ALPHA = 0.05
"""The share of studies that may claim any lever that gives nothing (Holm's procedure over all levers tried)."""

_EACH_BY_ITSELF = "Each lever of the plan was measured and proved by itself."
_SETTINGS_TRIED = 2


def tune(
    workload: Workload,
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    journal: Journal | None = None,
    levers: Mapping[str, Lever] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Study:
    """Search for the plan that makes the workload fastest, and prove it.

    With a journal every answer of the executor is kept and the study saved as it grows; a journal that holds answers
    already is gone on with. Ctrl-C ends the search and returns what is known.

    A budget that is too small for a proof, or ``options.quick``, ends in a study of status ``quick-look``: the time
    account, causes, bounds, and levers that were seen and not proved; it claims nothing and has no plan.

    Raises :class:`ScriptError` for a script that cannot be tuned, :class:`UsageError` for options that make no sense,
    and :class:`StudyError` when the study can no longer be written.
    """
    known = all_levers() if levers is None else levers
    check(options, known)
    trials, draft = opened(workload, options, executor, on_progress, journal, clock)
    trials.cuts_sets = True
    search = Search(trials, draft, known)
    return guarded(draft, search.run, search.interrupted)


class Search:
    """The state of a search: the plan so far and what is open."""

    def __init__(self, trials: Trials, draft: StudyDraft, levers: Mapping[str, Lever]) -> None:
        self._trials = trials
        self._draft = draft
        self._levers = levers
        self._open = [it.name for it in chosen(trials.options, levers)]
        self._plan = plans_of.EMPTY
        self._profile: Profile | None = None
        self._findings: tuple[Finding, ...] = ()
        self._seen_with: dict[str, Plan] = {}
        self._family: dict[str, Comparison] = {}
        self._used: dict[str, float] = {}
        self._noise: list[float] = []
        self._compared = False
        self._untried: dict[str, Plan] = {}
        self._left_to_try: dict[str, Sequence[Screened]] = {}
        self._verified: tuple[Plan, Verification] | None = None

    def run(self) -> None:
        """From the first launch to the verification."""
        self._understand()
        self._skip_unwanted()
        self._trials.choose_rounds(len(self._open))
        while self._pass() or self._second_chance():
            pass
        self._ablate()
        self._find_with_outcomes()
        self._verify()

    def _understand(self) -> None:
        machine, observation = begin(self._trials, self._draft)
        self._baseline = observation.run
        self._trials.reserve_seconds = reserve_while_bounding(self._trials)
        bounds = measure_ceilings(self._trials, self._draft, observation, machine)
        self._baseline_situation = self._situation = bounds.trusted
        note_bounds(self._draft, bounds)
        self._stages_seconds = self._trials.spent_seconds
        self._trials.reserve_seconds = reserve_for_first_answer(self._trials)
        share = share_for_causes(self._trials, self._baseline, self._stages_seconds)
        self._profile = take_profile(self._trials, self._draft, observation, bounds, budget_share=share)
        self._findings = note_findings(self._draft, self._profile)
        self._prover: Prover = ParityProver(self._trials, self._levers, bounds.situation)

    def _look_at_the_rest(self) -> None:
        """What is left when all else is done is enough for a look, perhaps, at levers that had none."""
        for name in [it for it in self._untried if isinstance(self._verdict_of(it), Skipped)]:
            found = self._look(Screened(self._untried[name].settings[-1]))
            if found.gain is not None:
                self._note_seen(name, found, self._untried[name])

    def _verdict_of(self, name: str) -> Verdict | None:
        outcome = self._draft.outcome_of(name)
        return outcome.verdict if outcome is not None else None

    def _close(self, text: str = "") -> None:
        """The study is over; what a larger budget would do is on record."""
        self._look_at_the_rest()
        trials, options = self._trials, self._trials.options
        left_out = [name for name in self._untried if self._is_open(name)]
        if not left_out and not options.quick:
            self._draft.close("finished", text)
            return
        if self._compared:
            candidates = [self._untried[it] for it in left_out]
            more = budget_for_the_rest(trials, self._prover, self._plan, candidates)
            self._draft.update(needed_seconds=more)
            self._draft.close("out-of-budget", text)
            return
        needed: float | None = None
        if left_out:
            best = self._untried[left_out[0]]
            needed = budget_for_a_proof(trials, self._baseline, self._stages_seconds, best)
        self._draft.update(needed_seconds=needed)
        self._draft.close("quick-look", quick_look_text(options.budget_seconds, needed, on_purpose=options.quick))

    def interrupted(self) -> None:
        """Close the study with what is known; the levers that were not decided are named."""
        for name in self._open:
            if self._draft.outcome_of(name) is None:
                verdict = Skipped(reason="Not tried: the search was interrupted before.")
                self._draft.decide(Outcome(lever=name, verdict=verdict))
        self._find_with_outcomes()
        kept = {it.lever for it in self._draft.study.outcomes if isinstance(it.verdict, Kept)}
        settings = tuple(it for it in self._draft.study.plan.settings if it.lever in kept)
        self._draft.update(plan=Plan(settings=settings))
        text = ""
        if settings and self._draft.study.verification is None:
            text = f"The whole plan was not verified. {_EACH_BY_ITSELF}"
        self._draft.close("interrupted", text)

    # -- passes over the levers ---------------------------------------------------------------

    def _skip_unwanted(self) -> None:
        """Note the levers that the options leave out, and those that have no business here."""
        self._draft.rank(it.lever.name for it in self._prospects(self._open)[0])
        self._draft.rank(self._levers)
        for name in self._levers:
            if name not in self._open:
                self._draft.note(Outcome(lever=name, verdict=Skipped(reason="Excluded by `--only` or `--skip`.")))

    def _prospects(self, names: Sequence[str]) -> tuple[list[Prospect], list[Outcome]]:
        levers = [self._levers[it] for it in names]
        return prospects_of(levers, self._situation, self._trials.options, self._findings)

    def _find_with_outcomes(self) -> None:
        """Look once more when trials have shown what the levers give: that too points at causes."""
        if self._profile is not None:
            note_findings(self._draft, msgspec.structs.replace(self._profile, outcomes=self._draft.study.outcomes))

    def _pass(self) -> bool:
        """Try every open lever that was not yet seen beside the present plan. True when the plan grew: then what gave
        nothing before may give something now."""
        fresh = [it for it in self._open if self._seen_with.get(it) != self._plan]
        prospects, passed_over = self._prospects(fresh)
        for outcome in passed_over:
            self._seen_with[outcome.lever] = self._plan
            if self._draft.outcome_of(outcome.lever) is None:
                self._draft.decide(outcome, "screening")
        if not prospects:
            return False
        before = self._plan
        again = any(it.lever.name in self._seen_with for it in prospects)
        noise = 0.0 if again else noise_of_a_set(self._noise)
        self._trials.reserve_seconds = reserve_for(self._trials, self._prover, before)
        hopeful = screen(self._trials, self._draft, before, prospects, noise=noise, again=again)
        for prospect in prospects:
            self._seen_with[prospect.lever.name] = before
            self._close_if_final(prospect.lever.name)
        for name, choices in hopeful.items():
            self._seen_with[name] = self._plan
            self._attempt(name, choices)
        return self._plan != before

    def _second_chance(self) -> bool:
        """Try again what seemed too expensive: every set corrects what a trial takes. True when the plan grew."""
        before = self._plan
        for name, choices in list(self._left_to_try.items()):
            del self._left_to_try[name]
            if self._is_open(name) and self._way(plans_of.with_setting(self._plan, choices[0].setting)) is not None:
                self._attempt(name, choices)
        return self._plan != before

    def _is_open(self, name: str) -> bool:
        """Whether a lever has not been compared with anything."""
        return isinstance(self._verdict_of(name), (Seen, Skipped, type(None)))

    def _attempt(self, name: str, choices: Sequence[Screened]) -> None:
        """Try a lever with its best setting, and with the next best where that one failed or broke the numbers."""
        first: Outcome | None = None
        for choice in choices[:_SETTINGS_TRIED]:
            candidate = plans_of.with_setting(self._plan, choice.setting)
            way = self._way(candidate)
            if way is None and choice.gain is None:
                choice = self._look(choice)
                way = self._way(candidate)  # the look corrected what a trial takes
            if way is None:
                self._note_seen(name, choice, candidate)
                self._left_to_try[name] = choices
                break
            self._trials.set_rounds(way.rounds)
            outcome, run = (self._try_straight if way.straight else self._try)(name, choice, candidate)
            if outcome is None:
                self._note_seen(name, choice, candidate)
                break
            if isinstance(outcome.verdict, Kept) and run is not None:
                self._draft.decide(outcome, plan=candidate)
                self._plan = candidate
                self._used = self._trials.options.goal.used_after(self._used, outcome.verdict.comparison)
                self._situation = situation_with(self._baseline_situation, candidate, run)
            elif first is None:
                self._draft.decide(outcome)
            first = first or outcome
            if not isinstance(outcome.verdict, (QualityLost, Failed)):
                break
        self._close_if_final(name)

    def _way(self, candidate: Plan) -> Way | None:
        """How the candidate can be proved; None where it cannot, or where a look is all that was asked for."""
        if self._trials.options.quick:
            return None
        way = affordable_way(self._trials, self._prover, self._plan, candidate)
        if way is not None and not way.straight:
            reserve = RESERVE_MARGIN * verification_cost(self._trials, None, candidate, way.rounds)
            self._trials.reserve_seconds = reserve
        elif way is not None:
            self._trials.reserve_seconds = 0.0
        return way

    def _look(self, choice: Screened) -> Screened:
        """A look at a setting that cannot be tried; a plan that is kept already must still be verified after it."""
        trials, done = self._trials, self._draft.study.verification is not None
        to_come = 0.0 if done or not self._plan.settings else verification_cost(trials, self._prover, self._plan)
        trials.reserve_seconds = RESERVE_MARGIN * to_come
        found = look_at(trials, self._draft, self._plan, self._levers[choice.setting.lever], choice.setting)
        return choice if isinstance(found, Failure) else found

    def _keeping_proof(self, candidate: Plan, ask: Callable[[], _Answer]) -> _Answer:
        """Sets that may not use up what the candidate's proof will take."""
        kept, proof = self._trials.reserve_seconds, self._prover.cost(candidate)
        self._trials.reserve_seconds = kept + proof
        try:
            return ask()
        finally:
            self._trials.reserve_seconds = kept

    def _try_straight(self, name: str, choice: Screened, candidate: Plan) -> tuple[Outcome | None, Run | None]:
        """The same by the verification alone: sets that nothing was chosen by, against the untouched script."""
        before = self._trials.spent_seconds
        result = self._keeping_proof(candidate, partial(measure_plan, self._trials, self._draft, candidate))
        run: Run | None = None
        if isinstance(result, Failure):
            if result.cut:
                return None, None
            verdict: Verdict = Failed(ending=result.ending, reason=result.reason)
        else:
            self._compared, run = True, result.run
            self._family[name] = result.comparison
            verdict = self._verdict(Confirmation(result.comparison, result.sets), candidate)
            if isinstance(verdict, Kept) and verdict.comparison.quality is not None:
                self._verified = candidate, result.with_quality(verdict.comparison.quality)
        spent = self._trials.spent_seconds - before
        return Outcome(lever=name, setting=choice.setting, verdict=verdict, trial_seconds=spent), run

    def _try(self, name: str, choice: Screened, candidate: Plan) -> tuple[Outcome | None, Run | None]:
        """The outcome of one trial, and the candidate's last run where it ran through; no outcome where the time was
        over before there was a result."""
        before = self._trials.spent_seconds
        ask = partial(confirm, self._trials, self._draft, self._plan, candidate, lever=name, used=self._used)
        result = self._keeping_proof(candidate, ask)
        if isinstance(result, Failure) and result.cut:
            return None, None
        if isinstance(result, Failure):
            verdict: Verdict = Failed(ending=result.ending, reason=result.reason)
            run, report = None, choice.compile
        else:
            self._compared = True
            self._family[name] = result.comparison
            self._noise += launch_noise(result.sets)
            verdict = self._verdict(result, candidate)
            run, report = result.candidate_run, result.candidate_run.compile
        outcome = Outcome(
            lever=name,
            setting=choice.setting,
            verdict=verdict,
            compile=report if report and (report.seconds or report.graphs) else None,
            trial_seconds=self._trials.spent_seconds - before,
        )
        return outcome, run

    def _verdict(self, result: Confirmation, candidate: Plan) -> Verdict:
        """From a trial to a verdict; only what is better is worth a proof."""
        goal = self._trials.options.goal
        judgement = judge(goal.objective, result.comparison, self._used)
        if judgement.verdict != "better":
            return no_gain(result.comparison, goal, judgement=judgement, unfinished=result.unfinished)
        if self._prover.proof_for(candidate.settings[-1]) == "exact":
            quality: Quality | Failure = self._prover.prove_exact(result.sets)
        elif self._trials.fits(self._prover.cost(candidate)):
            self._draft.tell("parity", f"Does {candidate.settings[-1].lever} produce the same results?")
            quality = self._prover.prove(candidate)
        else:
            return NotVerified(comparison=result.comparison, reason="The budget left no time for the proof.")
        if isinstance(quality, Failure):
            return Failed(ending=quality.ending, reason=quality.reason)
        comparison = msgspec.structs.replace(result.comparison, quality=quality)
        return of_quality(comparison, quality, self._trials.options.accept_unverified)

    def _close_if_final(self, name: str) -> None:
        """A lever that failed, broke the numbers or was kept is not tried again beside another plan."""
        outcome = self._draft.outcome_of(name)
        if outcome is not None and isinstance(outcome.verdict, (Kept, QualityLost, NotVerified, Failed)):
            self._open = [it for it in self._open if it != name]

    def _note_seen(self, name: str, choice: Screened, candidate: Plan) -> None:
        """A lever that cannot be proved with what is left, or need not be: say what was seen of it, if anything."""
        self._untried[name] = candidate
        if self._is_open(name):
            outcome = Outcome(
                lever=name, setting=choice.setting, verdict=self._seen(choice), trial_seconds=choice.seconds
            )
            self._draft.decide(outcome, "screening")

    def _seen(self, choice: Screened) -> Seen | Skipped:
        if choice.gain is not None:
            return seen(choice.gain, choice.rounds, self._trials.options.goal)
        *_, shortest = looks(self._trials, self._plan, [choice.setting])
        return no_time(shortest.seconds, self._trials.left_seconds)

    # -- the end ------------------------------------------------------------------------------

    def _ablate(self) -> None:
        if len(self._plan.settings) < 2:
            return
        self._trials.reserve_seconds = RESERVE_MARGIN * verification_cost(self._trials, self._prover, self._plan)
        plan, dropped = ablate(self._trials, self._draft, self._plan, self._doubtful())
        for it in dropped:
            self._give_up(it.lever, it.reason, it.comparison)
        self._plan = plan
        self._draft.update(plan=plan)

    def _doubtful(self) -> set[str]:
        """Levers whose own trial does not survive Holm's procedure over all levers tried."""
        adjusted = speed.holm([self._trials.options.goal.p_value(it) for it in self._family.values()])
        return {name for name, p in zip(self._family, adjusted, strict=True) if p > FAMILY_ALPHA}

    def _verify(self) -> None:
        self._trials.reserve_seconds = 0.0
        if self._plan.settings and not self._can_verify():
            self._draft.close("out-of-budget", f"No time was left to verify the whole plan. {_EACH_BY_ITSELF}")
            return
        result = self._verification()
        if result is None:
            self._close()
            return
        if isinstance(result, Failure) and result.cut:
            self._draft.close("out-of-budget", f"The budget ended before the plan was verified. {_EACH_BY_ITSELF}")
            return
        if isinstance(result, Failure):
            self._withdraw(f"The verification of the whole plan failed. {result.reason}")
            self._close(f"The verification of the whole plan failed. {result.reason}")
            return
        compared = self._prover.compared_runs(self._plan) or (result.baseline_run, result.run)
        self._draft.update(
            verification=result.comparison,
            losses=loss_curves(*compared, result.comparison.quality),
            account_before=account_of(result.baseline_run)[0],
            account_after=account_of(result.run)[0],
        )
        self._draft.judge("account", [result.baseline_run, result.run])
        text = self._why_not(result.comparison)
        if text:
            self._withdraw(text)
        self._close(text)

    def _verification(self) -> Verification | Failure | None:
        """That of the plan; None where no lever is left in it."""
        if self._verified is not None and self._verified[0] == self._plan:
            return self._verified[1]
        quality = self._prove_plan()
        return verify(self._trials, self._draft, self._prover, self._plan, quality) if self._plan.settings else None

    def _can_verify(self) -> bool:
        """Whether the verification still fits, with fewer rounds if need be: the reserve was only an estimate."""
        if self._verified is not None and self._verified[0] == self._plan:
            return True
        return can_verify(self._trials, self._prover, self._plan)

    def _prove_plan(self) -> Quality | None:
        """Sameness of the whole plan, its newest lever given up while it is not shown; None for a plan of exact levers
        only, whose proof is in the verification's own runs."""
        while self._plan.settings:
            if all(self._prover.proof_for(it) == "exact" for it in self._plan.settings):
                return None
            self._draft.tell("parity", "Does the whole plan produce the same results?")
            quality = self._prover.prove(self._plan)
            if not isinstance(quality, Failure) and self._acceptable(quality):
                return quality
            newest = self._plan.settings[-1].lever
            reason = quality.reason if isinstance(quality, Failure) else quality.text
            self._give_up(newest, f"Together with the other levers of the plan: {reason}", None)
            self._plan = plans_of.without(self._plan, newest)
            self._draft.update(plan=self._plan)
        return None

    def _acceptable(self, quality: Quality) -> bool:
        if quality.verdict == "not-verified":
            return self._trials.options.accept_unverified
        return quality.verdict != "lost"

    def _why_not(self, verification: Comparison) -> str:
        """Why the plan must not be kept, or nothing."""
        if verification.quality is not None and not self._acceptable(verification.quality):
            return f"The plan was dropped. {verification.quality.text}"
        return why_given_up(verification, judge(self._trials.options.objective, verification))

    def _withdraw(self, reason: str) -> None:
        for it in self._plan.settings:
            self._give_up(it.lever, f"It was kept at first. {reason}", None)
        self._plan = plans_of.EMPTY
        self._draft.update(plan=self._plan)

    def _give_up(self, lever: str, reason: str, comparison: Comparison | None) -> None:
        """Turn a kept lever's outcome into one without gain; its own trial stays on record unless a later one says."""
        outcome = self._draft.outcome_of(lever)
        if outcome is None:
            return
        earlier = getattr(outcome.verdict, "comparison", None)
        metric = self._trials.options.objective.metric
        verdict = NoGain(comparison=comparison or earlier, metric=metric, reason=reason)
        self._draft.decide(msgspec.structs.replace(outcome, verdict=verdict))
