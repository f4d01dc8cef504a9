"""The search: observe, measure ceilings, look for causes, try levers, leave out the idle, verify.

It is greedy. A lever that proved itself becomes part of the plan that the next one is tried on top of, since levers
interact: what a faster model gains, a slow loader may eat. What is known whenever the search is ended is an answer.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import msgspec

from hotlap import plan as plans_of
from hotlap.diagnose.profile import Profile
from hotlap.errors import BudgetError, ScriptError
from hotlap.levers.api import Lever, all_levers
from hotlap.measure import speed
from hotlap.measure.disturbance import disturbance, disturbance_of_rates
from hotlap.measure.parity.curves import loss_curves
from hotlap.records import (
    Comparison,
    Failed,
    Finding,
    Kept,
    Machine,
    NoGain,
    NotVerified,
    Outcome,
    ParityComparison,
    ParityLost,
    Plan,
    Run,
    Skipped,
    SpeedComparison,
    Study,
    StudyStatus,
    Verdict,
    Workload,
)
from hotlap.redact import redacted
from hotlap.study import Journal
from hotlap.trial.executor import Executor
from hotlap.tune.ablate import ablate
from hotlap.tune.book import Book, OnProgress, say_nothing
from hotlap.tune.ceilings import measure_ceilings, situation_with
from hotlap.tune.confirm import Confirmation, confirm, first_look_cost, launch_noise
from hotlap.tune.costs import FEWEST_ROUNDS, Costs
from hotlap.tune.findings import note_findings
from hotlap.tune.journaled import JournaledExecutor
from hotlap.tune.observe import Observation, account_of, first_run, understand
from hotlap.tune.options import Options, check, chosen
from hotlap.tune.profiled_launch import SEARCH_SHARE, take_profile
from hotlap.tune.prove import Prover
from hotlap.tune.quiet import quietly
from hotlap.tune.screen import USUAL_LAUNCH_NOISE, Prospect, Screened, prospects_of, screen
from hotlap.tune.trials import Failure, Trials
from hotlap.tune.verdicts import no_gain, of_parity
from hotlap.tune.verify import verification_cost, verify

FAMILY_ALPHA = 0.05
"""The share of studies that may claim any lever that gives nothing (Holm's procedure over all levers tried)."""

_EACH_BY_ITSELF = "Each lever of the plan was measured and proved by itself."
_SETTINGS_TRIED = 2
_MARGIN = 1.15
_LEAST_NOISE, _MOST_NOISE = 0.015, 0.06
_ENOUGH_FOR_NOISE = 3


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

    Raises :class:`ScriptError` for a script that cannot be tuned, :class:`BudgetError` for a budget that is too small
    for a single comparison, :class:`UsageError` for options that make no sense, and :class:`StudyError` when the study
    can no longer be written.
    """
    known = all_levers() if levers is None else levers
    check(options, known)
    trials = Trials(workload, options, JournaledExecutor(executor, journal, clock=clock))
    book = Book(blank_study(workload, options, journal), trials, journal, on_progress)
    search = _Search(trials, book, known)
    return guarded(book, search.run, search.interrupted)


def blank_study(workload: Workload, options: Options, journal: Journal | None) -> Study:
    """A study of which nothing is known yet."""
    study = Study(workload=redacted(workload), budget_seconds=options.budget_seconds)
    if journal is None:
        return study
    header = journal.header
    return msgspec.structs.replace(
        study,
        identifier=header.identifier,
        hotlap_version=header.hotlap_version,
        started=header.started,
        source=header.source,
        directory=str(journal.directory),
    )


def guarded(book: Book, work: Callable[[], None], interrupted: Callable[[], None]) -> Study:
    """Do the work, and see to it that the study is closed and saved however it ends."""
    try:
        work()
    except KeyboardInterrupt:
        interrupted()
    except ScriptError as error:
        book.close("script-failed", error.what)
        raise
    except BudgetError as error:
        book.close("out-of-budget", error.what)
        raise
    return book.study


def begin(trials: Trials, book: Book) -> tuple[Machine, Observation]:
    """The stages that every study begins with: the machine, and the script as it is.

    Raises :class:`ScriptError` as :func:`hotlap.tune.observe.understand` does.
    """
    book.tell("machine", "What this machine is")
    machine = trials.executor.machine()
    book.update(machine=machine)
    book.warn(*machine.warnings)
    book.tell("baseline", "The script as it is")
    trials.cores = machine.cores
    book.disturbed("matmul", disturbance_of_rates(machine))
    run, disturbed = quietly(
        trials, book, "account", lambda patience: first_run(trials, patience), lambda run: [run], stage="baseline"
    )
    book.update(baseline=run, files=run.files)
    book.disturbed("account", disturbed)
    book.warn(*run.notes)
    observation = dataclasses.replace(understand(run, trials), disturbance=disturbed)
    trials.costs = Costs(run.startup_seconds, observation.shape, cores=machine.cores)
    trials.fit_arms(machine, run)
    book.update(account_before=observation.account)
    book.warn(*observation.warnings)
    return machine, observation


class _Search:
    """The state of a search: the plan so far and what is open."""

    def __init__(self, trials: Trials, book: Book, levers: Mapping[str, Lever]) -> None:
        self._trials = trials
        self._book = book
        self._levers = levers
        self._open = [it.name for it in chosen(trials.options, levers)]
        self._plan = plans_of.EMPTY
        self._profile: Profile | None = None
        self._findings: tuple[Finding, ...] = ()
        self._seen_with: dict[str, Plan] = {}
        self._family: dict[str, SpeedComparison] = {}
        self._noise: list[float] = []
        self._out_of_budget = False

    def run(self) -> None:
        """From the first launch to the verification."""
        machine, observation = begin(self._trials, self._book)
        self._check_budget()
        bounds = measure_ceilings(self._trials, self._book, observation, machine)
        self._baseline_situation = self._situation = bounds.trusted
        ceilings = bounds.situation.ceilings
        rates = bounds.situation.loader_rates
        self._book.update(ceilings=ceilings, model_flop_utilisation=bounds.flop_utilisation, loader_rates=rates)
        self._profile = take_profile(self._trials, self._book, observation, bounds, budget_share=SEARCH_SHARE)
        self._findings = note_findings(self._book, self._profile)
        self._prover = Prover(self._trials, self._levers, bounds.situation)
        self._skip_unwanted()
        self._trials.choose_rounds(len(self._open))
        growing = True
        while growing:
            growing = self._pass()
        self._ablate()
        self._find_with_outcomes()
        self._verify()

    def interrupted(self) -> None:
        """Close the study with what is known; the levers that were not decided are named."""
        for name in self._open:
            if self._book.outcome_of(name) is None:
                verdict = Skipped(reason="It was not tried: the search was interrupted before.")
                self._book.decide(Outcome(lever=name, verdict=verdict))
        self._find_with_outcomes()
        kept = {it.lever for it in self._book.study.outcomes if isinstance(it.verdict, Kept)}
        settings = tuple(it for it in self._book.study.plan.settings if it.lever in kept)
        self._book.update(plan=Plan(settings=settings))
        text = ""
        if settings and self._book.study.verification is None:
            text = f"The whole plan was not verified. {_EACH_BY_ITSELF}"
        self._book.close("interrupted", text)

    # -- budget -------------------------------------------------------------------------------

    def _check_budget(self) -> None:
        """Raises :class:`BudgetError` when one trial, its proof and its verification do not fit."""
        trials, budget = self._trials, self._trials.options.budget_seconds
        if budget is None:
            return
        arms = [plans_of.EMPTY] * 3
        rounds = min(FEWEST_ROUNDS, trials.costs.shape.most_rounds)
        sets = speed.LOOKS[0].sets + speed.HEADLINE_SETS
        needed = trials.spent_seconds + sets * trials.costs.of_set(arms, rounds)
        if needed > budget:
            advised = 10 * math.ceil(_MARGIN * needed / 10)
            raise BudgetError(
                f"The budget of {budget:.0f} s is too small for a single comparison and its verification: "
                f"this script needs about {advised} s.",
                remedy=f"Give at least --budget {advised}s, or none.",
                needed_seconds=float(advised),
            )
        trials.reserve_seconds = needed - trials.spent_seconds  # what comes first may not use it up

    def _fits(self, candidate: Plan) -> bool:
        """Whether a trial of the candidate and, should it be kept, its verification can be paid for; with fewer rounds
        if need be."""
        trials = self._trials
        for rounds in dict.fromkeys((trials.rounds, min(trials.rounds, FEWEST_ROUNDS))):
            trials.set_rounds(rounds)
            # The trial's own proof is of this very plan, and is not paid for again.
            trials.reserve_seconds = verification_cost(trials, None, candidate)
            cost = first_look_cost(trials, self._plan, candidate, rounds) + self._prover.cost(candidate)
            if trials.fits(cost):
                return True
        return False

    def _cost_of_one_trial(self) -> float:
        """What a first trial and a verification will take: a first look at all levers may not use it up."""
        trials = self._trials
        first = first_look_cost(trials, self._plan, self._plan, trials.rounds)
        return first + verification_cost(trials, self._prover, self._plan)

    # -- passes over the levers ---------------------------------------------------------------

    def _skip_unwanted(self) -> None:
        """Note the levers that the options leave out, and those that have no business here."""
        self._book.rank(it.lever.name for it in self._prospects(self._open)[0])
        self._book.rank(self._levers)
        for name in self._levers:
            if name not in self._open:
                self._book.note(Outcome(lever=name, verdict=Skipped(reason="The options leave it out.")))

    def _prospects(self, names: Sequence[str]) -> tuple[list[Prospect], list[Outcome]]:
        levers = [self._levers[it] for it in names]
        return prospects_of(levers, self._situation, self._trials.options, self._findings)

    def _find_with_outcomes(self) -> None:
        """Look once more when trials have shown what the levers give: that too points at causes."""
        if self._profile is not None:
            note_findings(self._book, msgspec.structs.replace(self._profile, outcomes=self._book.study.outcomes))

    def _pass(self) -> bool:
        """Try every open lever that was not yet seen beside the present plan. True when the plan grew: then what gave
        nothing before may give something now."""
        fresh = [it for it in self._open if self._seen_with.get(it) != self._plan]
        prospects, passed_over = self._prospects(fresh)
        for outcome in passed_over:
            self._seen_with[outcome.lever] = self._plan
            if self._book.outcome_of(outcome.lever) is None:
                self._book.decide(outcome, "screening")
        if not prospects:
            return False
        before = self._plan
        again = any(it.lever.name in self._seen_with for it in prospects)
        noise = 0.0 if again else self._launch_noise()
        self._trials.reserve_seconds = self._cost_of_one_trial()
        hopeful = screen(self._trials, self._book, before, prospects, noise=noise, again=again)
        for prospect in prospects:
            self._seen_with[prospect.lever.name] = before
            self._close_if_final(prospect.lever.name)
        for name, choices in hopeful.items():
            self._seen_with[name] = self._plan
            self._attempt(name, choices)
        return self._plan != before

    def _attempt(self, name: str, choices: Sequence[Screened]) -> None:
        """Try a lever with its best setting, and with the next best where that one failed or broke the numbers."""
        first: Outcome | None = None
        for choice in choices[:_SETTINGS_TRIED]:
            candidate = plans_of.with_setting(self._plan, choice.setting)
            if not self._fits(candidate):
                self._no_budget(name, candidate)
                break
            outcome, run = self._try(name, choice, candidate)
            if isinstance(outcome.verdict, Kept) and run is not None:
                self._book.decide(outcome, plan=candidate)
                self._plan = candidate
                self._situation = situation_with(self._baseline_situation, candidate, run)
            elif first is None:
                self._book.decide(outcome)
            first = first or outcome
            if not isinstance(outcome.verdict, (ParityLost, Failed)):
                break
        self._close_if_final(name)

    def _try(self, name: str, choice: Screened, candidate: Plan) -> tuple[Outcome, Run | None]:
        """The outcome of one trial, and the candidate's last run where it ran through."""
        before = self._trials.spent_seconds
        result = confirm(self._trials, self._book, self._plan, candidate, lever=name)
        if isinstance(result, Failure):
            verdict: Verdict = Failed(ending=result.ending, reason=result.reason)
            run, report = None, choice.compile
        else:
            self._family[name] = result.speed
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
        """From a trial's speed to a verdict; only what is faster is worth a proof."""
        if result.speed.verdict != "faster":
            return no_gain(result.comparison, self._trials.options.delta, unfinished=result.unfinished)
        if self._prover.proof_for(candidate.settings[-1]) == "exact":
            parity: ParityComparison | Failure = self._prover.prove_exact(result.sets)
        elif self._trials.fits(self._prover.cost(candidate)):
            self._book.tell("parity", f"Does {candidate.settings[-1].lever} still compute the same?")
            parity = self._prover.prove(candidate)
        else:
            return NotVerified(comparison=result.comparison, reason="The budget left no time for the proof.")
        if isinstance(parity, Failure):
            return Failed(ending=parity.ending, reason=parity.reason)
        comparison = msgspec.structs.replace(result.comparison, parity=parity)
        return of_parity(comparison, parity, self._trials.options.accept_unverified)

    def _close_if_final(self, name: str) -> None:
        """A lever that failed, broke the numbers or was kept is not tried again beside another plan."""
        outcome = self._book.outcome_of(name)
        if outcome is not None and isinstance(outcome.verdict, (Kept, ParityLost, NotVerified, Failed)):
            self._open = [it for it in self._open if it != name]

    def _no_budget(self, name: str, candidate: Plan) -> None:
        self._out_of_budget = True
        if self._book.outcome_of(name) is None:
            trials = self._trials
            cost = first_look_cost(trials, self._plan, candidate, trials.rounds) + self._prover.cost(candidate)
            text = (
                f"A trial takes about {cost:.0f} s and the budget leaves {max(0.0, trials.left_seconds):.0f} s beside "
                "the verification."
            )
            self._book.decide(Outcome(lever=name, verdict=Skipped(reason=text)))

    def _launch_noise(self) -> float:
        """How far one set may mislead: twice what the baseline differed from itself by in this study's own sets."""
        if len(self._noise) < _ENOUGH_FOR_NOISE:
            return USUAL_LAUNCH_NOISE
        spread = math.sqrt(fmean(it * it for it in self._noise))
        return max(_LEAST_NOISE, min(_MOST_NOISE, 2 * spread))

    # -- the end ------------------------------------------------------------------------------

    def _ablate(self) -> None:
        if len(self._plan.settings) < 2:
            return
        self._trials.reserve_seconds = verification_cost(self._trials, self._prover, self._plan)
        plan, dropped = ablate(self._trials, self._book, self._plan, self._doubtful())
        for it in dropped:
            self._give_up(it.lever, it.reason, it.comparison)
        self._plan = plan
        self._book.update(plan=plan)

    def _doubtful(self) -> set[str]:
        """Levers whose own trial does not survive Holm's procedure over all levers tried."""
        adjusted = speed.holm([speed.p_value(it) for it in self._family.values()])
        return {name for name, p in zip(self._family, adjusted, strict=True) if p > FAMILY_ALPHA}

    def _verify(self) -> None:
        self._trials.reserve_seconds = 0.0
        if self._plan.settings and not self._can_verify():
            self._book.close("out-of-budget", f"The budget left no time to verify the whole plan. {_EACH_BY_ITSELF}")
            return
        status: StudyStatus = "out-of-budget" if self._out_of_budget else "finished"
        parity = self._prove_plan()
        if not self._plan.settings:
            self._book.close(status)
            return
        result = verify(self._trials, self._book, self._prover, self._plan, parity)
        if isinstance(result, Failure):
            self._withdraw(f"The verification of the whole plan failed. {result.reason}")
            self._book.close(status, f"The verification of the whole plan failed. {result.reason}")
            return
        compared = self._prover.compared_runs(self._plan) or (result.baseline_run, result.run)
        self._book.update(
            verification=result.comparison,
            losses=loss_curves(*compared, result.comparison.parity),
            account_before=account_of(result.baseline_run)[0],
            account_after=account_of(result.run)[0],
        )
        runs = [result.baseline_run, result.run]
        self._book.disturbed("account", disturbance("account", runs, self._trials.cores))
        text = self._why_not(result.comparison)
        if text:
            self._withdraw(text)
        self._book.close(status, text)

    def _can_verify(self) -> bool:
        """Whether the verification still fits, with fewer rounds if need be: the reserve was only an estimate."""
        trials = self._trials
        if not trials.fits(verification_cost(trials, self._prover, self._plan)):
            trials.set_rounds(FEWEST_ROUNDS)
        return trials.fits(verification_cost(trials, self._prover, self._plan))

    def _prove_plan(self) -> ParityComparison | None:
        """Sameness of the whole plan, its newest lever given up while it is not shown; None for a plan of exact levers
        only, whose proof is in the verification's own runs."""
        while self._plan.settings:
            if all(self._prover.proof_for(it) == "exact" for it in self._plan.settings):
                return None
            self._book.tell("parity", "Does the whole plan still compute the same?")
            parity = self._prover.prove(self._plan)
            if isinstance(parity, ParityComparison) and self._acceptable(parity):
                return parity
            newest = self._plan.settings[-1].lever
            reason = parity.reason if isinstance(parity, Failure) else parity.text
            self._give_up(newest, f"Together with the other levers of the plan: {reason}", None)
            self._plan = plans_of.without(self._plan, newest)
            self._book.update(plan=self._plan)
        return None

    def _acceptable(self, parity: ParityComparison) -> bool:
        if parity.verdict == "not-verified":
            return self._trials.options.accept_unverified
        return parity.verdict != "lost"

    def _why_not(self, verification: Comparison) -> str:
        """Why the plan must not be kept, or nothing."""
        if verification.parity is not None and not self._acceptable(verification.parity):
            return f"The plan was given up. {verification.parity.text}"
        if verification.speed.verdict == "faster":
            return ""
        if not verification.speed.baseline_agrees:
            return "No claim, and no plan: the script differed from itself. Tune again when the machine is quieter."
        return "Fresh launches did not confirm a gain of the whole plan, so it was given up."

    def _withdraw(self, reason: str) -> None:
        for it in self._plan.settings:
            self._give_up(it.lever, f"It was kept at first. {reason}", None)
        self._plan = plans_of.EMPTY
        self._book.update(plan=self._plan)

    def _give_up(self, lever: str, reason: str, comparison: Comparison | None) -> None:
        """Turn a kept lever's outcome into one without gain; its own trial stays on record unless a later one says."""
        outcome = self._book.outcome_of(lever)
        if outcome is None:
            return
        earlier = getattr(outcome.verdict, "comparison", None)
        verdict = NoGain(comparison=comparison or earlier, reason=reason)
        self._book.decide(msgspec.structs.replace(outcome, verdict=verdict))
