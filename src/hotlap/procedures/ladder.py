"""Try levers one by one: a trial on top of the current plan, and a proof; levers that gain join the plan.

This is for levers that a process cannot switch, and for those that could not be proved together. It is greedy: since
levers interact, each lever is tried on top of all that were kept before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.ceilings import situation_with
from hotlap.experiment.comparing import launch_noise
from hotlap.experiment.confirm import Confirmation, confirm
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.lever_notes import warn_of_notes
from hotlap.experiment.options import chosen
from hotlap.experiment.plan_ahead import Launches
from hotlap.experiment.prove import Prover
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever
from hotlap.objective import judge
from hotlap.procedures.budget import RESERVE_MARGIN, Way, affordable_way, reserve_for
from hotlap.procedures.forecast import forecast_one_by_one, plan_profile_launch, trials_forecast
from hotlap.procedures.prospects import USUAL_LAUNCH_NOISE, Prospect, bound_of, prospects_of
from hotlap.procedures.screen import (
    WORTH_SLOW_STARTS,
    Hopeful,
    Screened,
    exceeded,
    has_trial,
    is_hopeful,
    let_go_beyond_limit,
    noise_of_a_replicate,
    screen,
    screen_one,
)
from hotlap.procedures.screenings import most_seconds, screenings
from hotlap.procedures.strategies import narrowed
from hotlap.procedures.verdicts import little_in_first_measurements, no_gain, no_time, of_quality, seen
from hotlap.procedures.verify import Verification, measure_plan, verification_cost
from hotlap.records import (
    Comparison,
    CompileReport,
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
    Situation,
    Skipped,
    StrategyChoice,
    Verdict,
)

_Answer = TypeVar("_Answer")

_SETTINGS_TRIED = 2

NOT_VERIFIED_ANY_MORE: Mapping[str, Any] = MappingProxyType(
    {"verification": None, "losses": None, "timings": None, "account_after": None}
)
"""Fields of a study that a changed plan invalidates."""


class Ladder:
    """The state of a search: the plan so far and the open levers.

    With ``screens_in_breadth`` the first setting of each lever is measured before the second one of any.
    """

    _situation: Situation
    _baseline_situation: Situation
    _prover: Prover
    screens_in_breadth = False

    def __init__(self, trials: Trials, draft: StudyDraft, levers: Mapping[str, Lever]) -> None:
        self._trials = trials
        self._draft = draft
        self._levers = levers
        trials.slow_levers = [it.name for it in levers.values() if it.starts_slowly]
        trials.levers_beside_code = [it.name for it in levers.values() if it.keeps_compiled_code]
        self._open = [it.name for it in chosen(trials.options, levers)]
        self._plan = plans_of.EMPTY
        self._findings: tuple[Finding, ...] = ()
        self._seen_with: dict[str, Plan] = {}
        self._family: dict[str, Comparison] = {}
        self._used: dict[str, float] = {}
        self._noise: list[float] = []
        self._compared = False
        self._untried: dict[str, Plan] = {}
        self._left_to_try: dict[str, Sequence[Screened]] = {}
        self._verified: tuple[Plan, Verification] | None = None
        self._choice: StrategyChoice | None = None

    def _prospects(self, names: Sequence[str]) -> tuple[list[Prospect], list[Outcome]]:
        levers = [self._levers[it] for it in names]
        found, passed_over = prospects_of(levers, self._situation, self._trials.options, self._findings)
        kept, left_out = narrowed(found, self._choice, self._trials.options.objective)
        return kept, [*passed_over, *left_out]

    def _pass(self) -> bool:
        """Try every open lever that was not yet tried on top of this plan.

        True if the plan grew: then levers without a gain may have one now.
        """
        fresh = [it for it in self._open if self._seen_with.get(it) != self._plan and self._may_gain_by_now(it)]
        prospects, passed_over = self._prospects(fresh)
        for outcome in passed_over:
            self._seen_with[outcome.lever] = self._plan
            if self._draft.outcome_of(outcome.lever) is None:
                self._draft.decide(outcome, "screening")
        if not prospects:
            return False
        before = self._plan
        again = any(it.lever.name in self._seen_with for it in prospects)
        self._trials.reserve_seconds = reserve_for(self._trials, self._prover, before)
        self._seen_with.update({it.lever.name: before for it in prospects})
        hopeful = self._worth_its_starts(self._screened(prospects, again))
        for prospect in prospects:
            self._close_if_final(prospect.lever.name)
        if hopeful and not self._trials.options.quick:
            candidates = [plans_of.with_setting(self._plan, it[0].setting) for it in hopeful.values()]
            rest = trials_forecast(self._trials, self._prover, self._plan, candidates)
            has_plan = bool(rest.launches or self._plan.settings)
            self._draft.plan_ahead("trial", rest.then(*(self._profile_of_plan(candidates[-1]) if has_plan else ())))
        for name, choices in hopeful.items():
            self._seen_with[name] = self._plan
            self._attempt(name, choices)
        return self._plan != before

    def _worth_its_starts(self, hopeful: Hopeful) -> Hopeful:
        """Without those that promise too little for many launches, if the script starts slowly.

        Without a plan these promise no gain worth having, unless ``--only`` names them. On top of one they promise a
        small gain, which takes some 24 launches to show, or no more than noise explains.
        """
        options = self._trials.options
        goal, has_plan = options.goal, bool(self._plan.settings)
        if not goal.is_of_speed or not self._trials.starts_slowly or (options.only and not has_plan):
            return hopeful
        least = 1 + goal.delta
        if has_plan:
            least = max(WORTH_SLOW_STARTS, least * (1 + noise_of_a_replicate(self._noise)))
        little = {name: first for name, (first, *_) in hopeful.items() if first.gain is not None and first.gain < least}
        for name, first in little.items():
            if not has_trial(self._draft, name):
                verdict = little_in_first_measurements(first, goal)
                self._draft.decide(Outcome(lever=name, setting=first.setting, verdict=verdict), "screening")
        return {name: it for name, it in hopeful.items() if name not in little}

    def _may_gain_by_now(self, name: str) -> bool:
        """Whether a lever that was measured on top of a smaller plan is worth another measurement.

        Not one that lost by more than all that joined the plan since has gained: these took less time out of the step
        than the lever would have to win back.
        """
        goal, measured = self._trials.options.goal, self._draft.first_gain_of(name)
        if measured is None or not goal.is_of_speed:
            return True
        gain, then = measured
        if any(it not in self._plan.settings for it in then.settings):
            return True
        grown = math.prod(self._most_gained_by(it.lever) for it in self._plan.settings if it not in then.settings)
        return gain * grown * (1 + USUAL_LAUNCH_NOISE) >= 1 + goal.delta

    def _was_next_to_the_plan(self, name: str) -> bool:
        """Whether the lever was last measured on top of exactly this plan."""
        measured = self._draft.first_gain_of(name)
        if measured is not None and set(measured[1].settings) == set(self._plan.settings):
            return True
        verdict = self._verdict_of(name)
        if not isinstance(verdict, NoGain) or verdict.comparison is None:
            return False
        return set(verdict.comparison.baseline.settings) == set(self._plan.settings)

    def _most_gained_by(self, name: str) -> float:
        """The upper end of a kept lever's interval; infinite where it has none."""
        verdict = self._verdict_of(name)
        return verdict.comparison.speed.speedup.high if isinstance(verdict, Kept) else math.inf

    def _profile_of_plan(self, plan: Plan) -> tuple[Launches, ...]:
        """What the profiled launch of the plan adds to a forecast; it is made only next to one of the script."""
        if not self._draft.study.profiled_steps or self._trials.options.quick:
            return ()
        return (plan_profile_launch(self._trials, plan),)

    def _screened(self, prospects: Sequence[Prospect], again: bool) -> Hopeful:
        """The levers to try on top of the plan, with their settings; ``again``: some were tried before."""
        noise = 0.0 if again else noise_of_a_replicate(self._noise)
        return screen(
            self._trials,
            self._draft,
            self._plan,
            prospects,
            noise=noise,
            again=again,
            used=self._used,
            in_breadth=self.screens_in_breadth,
        )

    def _second_chance(self) -> bool:
        """Try levers that seemed too expensive, since every replicate corrects the costs. True if the plan grew."""
        before = self._plan
        for name, choices in list(self._left_to_try.items()):
            del self._left_to_try[name]
            if self._is_open(name) and self._way(plans_of.with_setting(self._plan, choices[0].setting)) is not None:
                self._attempt(name, choices)
        return self._plan != before

    def _is_open(self, name: str) -> bool:
        """Whether a lever has not been compared yet."""
        return isinstance(self._verdict_of(name), (Seen, Skipped, type(None)))

    def _attempt(self, name: str, choices: Sequence[Screened]) -> None:
        """Try a lever with its best setting, and with the next best if that one failed or changed the results."""
        first: Outcome | None = None
        for choice in choices[:_SETTINGS_TRIED]:
            candidate = plans_of.with_setting(self._plan, choice.setting)
            way = self._way(candidate, choice.gain)
            if way is None and choice.gain is None:
                screened = self._screen(choice)
                if isinstance(screened, Failure):
                    first = first or self._note_failed(choice, screened)
                    continue
                choice = screened
                noise = noise_of_a_replicate(self._noise)
                is_within = exceeded(choice, noise, self._used) is None
                if not is_within or not is_hopeful(choice, self._trials.options.goal.delta, noise):
                    self._note_seen(name, choice, candidate)
                    break
                way = self._way(candidate, choice.gain)  # the screening corrected the costs of a trial
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
                self._draft.decide(outcome, plan=candidate, **NOT_VERIFIED_ANY_MORE)
                self._plan = candidate
                self._used = self._trials.options.goal.used_after(self._used, outcome.verdict.comparison)
                self._situation = situation_with(self._baseline_situation, candidate, run, self._levers)
            elif first is None:
                self._draft.decide(outcome)
            first = first or outcome
            if not isinstance(outcome.verdict, (QualityLost, Failed)):
                break
        self._close_if_final(name)

    def _way(self, candidate: Plan, promised: float | None = None) -> Way | None:
        """How the candidate can be proved; None if it cannot, or if only a screening is wanted.

        The first lever of a script that starts slowly has no trial before its verification if a first measurement
        ``promised`` a clear gain: the verification decides alone, and would follow anyway.
        """
        if self._trials.options.quick:
            return None
        way = affordable_way(self._trials, self._prover, self._plan, candidate)
        if way is not None and not self._plan.settings and self._trials.starts_slowly:
            is_clear = self._trials.options.goal.is_of_speed and (promised or 0.0) >= WORTH_SLOW_STARTS
            way = replace(way, straight=way.straight or is_clear)
        if way is not None and not way.straight:
            reserve = RESERVE_MARGIN * verification_cost(self._trials, None, candidate, way.rounds)
            self._trials.reserve_seconds = reserve
        elif way is not None:
            self._trials.reserve_seconds = 0.0
        return way

    def _screen_the_rest(self) -> None:
        """Spend the remaining budget on screening levers that had none."""
        rest = {name: it for name, it in self._untried.items() if isinstance(self._verdict_of(name), Skipped)}
        self._trials.reserve_seconds = 0.0
        levers = {it.settings[-1]: self._levers[name] for name, it in rest.items()}
        self._draft.plan_ahead("screening", forecast_one_by_one(self._trials, self._plan, levers))
        for name, candidate in rest.items():
            choice = Screened(candidate.settings[-1])
            found = self._screen(choice)
            if isinstance(found, Failure):
                self._note_failed(choice, found)
            elif found.gain is not None:
                self._note_seen(name, found, candidate)

    def _screen(self, choice: Screened) -> Screened | Failure:
        """Screen a setting that cannot be tried; a plan that is kept already must still fit its verification."""
        trials, done = self._trials, self._draft.study.verification is not None
        to_come = 0.0 if done or not self._plan.settings else verification_cost(trials, self._prover, self._plan)
        trials.reserve_seconds = RESERVE_MARGIN * to_come
        lever = self._levers[choice.setting.lever]
        found = screen_one(trials, self._draft, self._plan, lever, choice.setting)
        if isinstance(found, Failure):
            return found
        return replace(found, bound=bound_of(lever, self._situation) if trials.options.goal.is_of_speed else None)

    def _keeping_proof(self, candidate: Plan, ask: Callable[[], _Answer]) -> _Answer:
        """Take replicates, with the time of the candidate's proof reserved."""
        kept, proof = self._trials.reserve_seconds, self._prover.cost(candidate)
        self._trials.reserve_seconds = kept + proof
        try:
            return ask()
        finally:
            self._trials.reserve_seconds = kept

    def _try_straight(self, name: str, choice: Screened, candidate: Plan) -> tuple[Outcome | None, Run | None]:
        """The same by the verification alone: fresh replicates compared with the unmodified script."""
        before = self._trials.spent_seconds
        result = self._keeping_proof(candidate, partial(measure_plan, self._trials, self._draft, candidate))
        run: Run | None = None
        report = choice.compile
        if isinstance(result, Failure):
            if result.cut:
                return None, None
            verdict: Verdict = Failed(ending=result.ending, reason=result.reason)
        else:
            self._compared, run, report = True, result.run, result.compile
            self._family[name] = result.comparison
            verdict = self._verdict(Confirmation(result.comparison, result.replicates), candidate)
            if isinstance(verdict, Kept) and verdict.comparison.quality is not None:
                self._verified = candidate, result.with_quality(verdict.comparison.quality)
        outcome = Outcome(
            lever=name,
            setting=choice.setting,
            verdict=verdict,
            compile=_worth_showing(report),
            trial_seconds=self._trials.spent_seconds - before,
        )
        return outcome, run

    def _try(self, name: str, choice: Screened, candidate: Plan) -> tuple[Outcome | None, Run | None]:
        """The outcome of one trial (None: the time ended before a result), and the candidate's last complete run."""
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
            self._noise += launch_noise(result.replicates)
            verdict = self._verdict(result, candidate)
            run, report = result.candidate_run, result.compile
            warn_of_notes(self._draft, choice.setting, run)
        outcome = Outcome(
            lever=name,
            setting=choice.setting,
            verdict=verdict,
            compile=_worth_showing(report),
            trial_seconds=self._trials.spent_seconds - before,
        )
        return outcome, run

    def _verdict(self, result: Confirmation, candidate: Plan) -> Verdict:
        """Turn a trial into a verdict; only a better setting is proved."""
        goal = self._trials.options.goal
        judgement = judge(goal.objective, result.comparison, self._used)
        if judgement.verdict != "better":
            return no_gain(result.comparison, goal, judgement=judgement, unfinished=result.unfinished)
        if self._prover.proof_for(candidate.settings[-1]) == "exact":
            quality: Quality | Failure = self._prover.prove_exact(result.replicates)
        elif self._trials.fits(self._prover.least_cost(candidate)):
            self._draft.report("parity", f"Does {candidate.settings[-1].lever} produce the same results?")
            quality = self._prover.prove(candidate)
        else:
            return NotVerified(comparison=result.comparison, reason="The budget left no time for the proof.")
        if isinstance(quality, Failure):
            return Failed(ending=quality.ending, reason=quality.reason)
        comparison = msgspec.structs.replace(result.comparison, quality=quality)
        return of_quality(comparison, quality, self._trials.options.accept_unverified)

    def _close_if_final(self, name: str) -> None:
        """Whether a lever failed, changed the results or was kept, so that it is not tried on top of another plan."""
        outcome = self._draft.outcome_of(name)
        if outcome is not None and isinstance(outcome.verdict, (Kept, QualityLost, NotVerified, Failed)):
            self._open = [it for it in self._open if it != name]

    def _note_seen(self, name: str, choice: Screened, candidate: Plan) -> None:
        """Report a lever that cannot or need not be proved, with what was measured of it."""
        self._untried[name] = candidate
        let_go_beyond_limit(self._draft, choice, noise_of_a_replicate(self._noise), self._used)
        has_failed = isinstance(self._verdict_of(name), Failed)  # with another setting
        if self._is_open(name) or (has_failed and choice.gain is not None):
            outcome = Outcome(
                lever=name, setting=choice.setting, verdict=self._seen(choice), trial_seconds=choice.seconds
            )
            self._draft.decide(outcome, "screening")

    def _note_failed(self, choice: Screened, failure: Failure) -> Outcome:
        """Decide a lever whose first measurement failed."""
        verdict = Failed(ending=failure.ending, reason=failure.reason)
        outcome = Outcome(lever=choice.setting.lever, setting=choice.setting, verdict=verdict)
        self._draft.decide(outcome, "screening")
        return outcome

    def _seen(self, choice: Screened) -> Seen | Skipped:
        if choice.gain is not None:
            return seen(choice, choice.gain, self._trials.options.goal)
        *_, shortest = screenings(self._trials, self._plan, [choice.setting])
        return no_time(shortest.seconds, most_seconds(self._trials, shortest), self._trials.left_seconds)

    def _verdict_of(self, name: str) -> Verdict | None:
        outcome = self._draft.outcome_of(name)
        return outcome.verdict if outcome is not None else None


def _worth_showing(report: CompileReport | None) -> CompileReport | None:
    return report if report is not None and (report.seconds or report.graphs) else None
