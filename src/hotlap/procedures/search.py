"""The search: observe, measure ceilings, find bottlenecks, try levers, drop useless ones, verify.

Promising levers are tried at once, as one plan that is proved and verified (:mod:`hotlap.procedures.together`). The
others are tried one by one (:mod:`hotlap.procedures.ladder`). Whenever it is interrupted, the study is a valid answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from hotlap import plan as plans_of
from hotlap.diagnose.profile import Profile
from hotlap.experiment.ceilings import measure_ceilings, note_bounds, situation_with
from hotlap.experiment.collective_rates import measured_rates
from hotlap.experiment.comparing import launch_noise
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.failures import Failure
from hotlap.experiment.findings import note_findings
from hotlap.experiment.options import Options, check
from hotlap.experiment.profiled_launch import take_profile
from hotlap.experiment.profiled_plan import take_profile_of_plan
from hotlap.experiment.prove import ParityProver
from hotlap.experiment.stages import begin, guarded, opened
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever, all_levers
from hotlap.measure import speed
from hotlap.objective import is_speed, judge
from hotlap.procedures.ablate import ablate
from hotlap.procedures.batch.allowed import propose_batch
from hotlap.procedures.blocks import with_block_costs
from hotlap.procedures.budget import (
    RESERVE_MARGIN,
    budget_for_a_proof,
    budget_for_the_rest,
    is_ample,
    is_too_short_for_a_usual_proof,
    least_reserve_for_first_answer,
    reserve_for_first_answer,
    reserve_while_bounding,
    rounded_up,
    share_for_causes,
)
from hotlap.procedures.compose import compose, faster_together, split, switched_promise_more
from hotlap.procedures.forecast import as_allowed, forecast, search_forecast, settling_forecast, stages
from hotlap.procedures.joining import with_small_gains
from hotlap.procedures.ladder import Ladder
from hotlap.procedures.on_top import with_the_best_on_top
from hotlap.procedures.parts import plan_of
from hotlap.procedures.prospects import Prospect, prospects_of
from hotlap.procedures.screen import Hopeful, Screened, by_gain, noise_of_a_replicate
from hotlap.procedures.shown import shown_by
from hotlap.procedures.slow_starters import slow_and_not_asked_for, with_a_slow_one
from hotlap.procedures.strategies import choose_strategies
from hotlap.procedures.together import Settled, Together
from hotlap.procedures.verdicts import little_by_bound, little_in_first_measurements, quick_look_text, why_given_up
from hotlap.procedures.verify import Verification, can_verify, verification_cost, verify
from hotlap.records import (
    Comparison,
    Kept,
    NoGain,
    Outcome,
    Plan,
    Quality,
    Run,
    Setting,
    Skipped,
    Study,
    Workload,
)
from hotlap.study import Journal
from hotlap.trial.executor import Executor

_BATCH_SIZE = "batch-size"

FAMILY_ALPHA = 0.05
"""The share of studies that may claim a lever without an effect (Holm's procedure over all levers tried)."""

_RATES_SHARE = 0.05
"""The largest share of the budget for measuring collectives."""

_NO_TIME = "No time was left to verify it together with the plan, which was verified without it."
_NOT_CONFIRMED = "Fresh launches did not confirm the plan with it, so it was dropped; the plan was verified without it."
_EACH_BY_ITSELF = "Each lever of the plan was measured and proved by itself."


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

    With a journal every answer of the executor is stored and the study saved as it grows; a journal with answers is
    resumed. Ctrl-C ends the search and returns the study so far.

    A budget that is too small for a proof, or ``options.quick``, ends in a study of status ``quick-look``: the time
    account, findings, bounds, and levers that were measured but not proved; it makes no claim and has no plan.

    Raises :class:`ScriptError` for a script that cannot be tuned, :class:`UsageError` for invalid options, and
    :class:`StudyError` if the study can no longer be written.
    """
    known = all_levers() if levers is None else levers
    check(options, known)
    trials, draft = opened(workload, options, executor, on_progress, journal, clock)
    trials.cuts_replicates = True
    search = Search(trials, draft, known)
    return guarded(draft, search.run, search.interrupted)


class Search(Ladder):
    """From the first launch to the verification."""

    tries_at_once = True

    def __init__(self, trials: Trials, draft: StudyDraft, levers: Mapping[str, Lever]) -> None:
        super().__init__(trials, draft, levers)
        self._profile: Profile | None = None
        self._tried_at_once = False
        self._disturbed: Verification | None = None

    def run(self) -> None:
        """From the first launch to the verification."""
        self._observe()
        self._skip_excluded()
        self._trials.choose_rounds(len(self._open))
        while self._pass() or self._second_chance():
            pass
        self._ablate()
        self._find_with_outcomes()
        self._verify()

    def _observe(self) -> None:
        machine, observation = begin(self._trials, self._draft)
        self._baseline = observation.run
        ahead = stages(self._trials, observation, machine)
        self._draft.plan_ahead("baseline", search_forecast(self._trials, len(self._open), ahead))
        self._trials.reserve_seconds = reserve_while_bounding(self._trials)
        bounds = measure_ceilings(self._trials, self._draft, observation, machine)
        note_bounds(self._draft, bounds)
        self._stages_seconds = self._trials.spent_seconds
        self._trials.reserve_seconds = reserve_for_first_answer(self._trials)
        share = share_for_causes(self._trials, self._baseline, self._stages_seconds)
        self._profile, bounds = take_profile(self._trials, self._draft, observation, bounds, budget_share=share)
        self._baseline_situation = self._situation = bounds.trusted
        rates = measured_rates(self._trials, self._draft, observation.facts, budget_share=_RATES_SHARE)
        self._profile = msgspec.structs.replace(self._profile, measured_rates=rates.rates)
        self._findings = note_findings(self._draft, self._profile)
        if _BATCH_SIZE in self._open and _BATCH_SIZE in self._trials.options.allow and not self._trials.options.quick:
            proposed = propose_batch(self._trials, self._draft, machine, observation)
            self._situation = msgspec.structs.replace(self._situation, proposed_batch=proposed)
            self._baseline_situation = self._situation
        if "activation-checkpointing" in self._open and not self._trials.options.quick:
            self._situation = with_block_costs(self._trials, self._draft, self._situation)
            self._baseline_situation = self._situation
        self._prover = ParityProver(self._trials, self._levers, bounds.situation)
        if not self._trials.options.quick:
            levers = [self._levers[it] for it in self._open]
            prospects, _ = prospects_of(levers, self._situation, self._trials.options, self._findings)
            self._choice = choose_strategies(self._trials, self._draft, self._situation, prospects, rates)

    def _skip_excluded(self) -> None:
        """Note the levers that the options exclude, and those that do not apply here."""
        self._draft.rank(it.lever.name for it in self._prospects(self._open)[0])
        self._draft.rank(self._levers)
        for name in self._levers:
            if name not in self._open:
                self._draft.note(Outcome(lever=name, verdict=Skipped(reason="Excluded by `--only` or `--skip`.")))

    def _close(self, text: str = "") -> None:
        """Close the study, with what a larger budget would do."""
        self._screen_the_rest()
        trials, options = self._trials, self._trials.options
        left_out = [name for name in self._untried if self._is_open(name)]
        if not left_out and not options.quick:
            if not self._close_without_sizes(text):
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
            if not options.quick:  # what was measured for a lever (the batch sizes), and its own proof, may cost more
                by_itself = not self._tried_at_once or self._changes_learning(best.settings)
                more = budget_for_the_rest(trials, self._prover, self._plan, [best], with_trials=by_itself)
                needed = max(needed, more)
        self._draft.update(needed_seconds=needed)
        self._draft.close("quick-look", quick_look_text(options.budget_seconds, needed, on_purpose=options.quick))

    def _close_without_sizes(self, text: str) -> bool:
        """Close the study with what a larger budget would do if no batch size could be timed within this one."""
        proposed = self._situation.proposed_batch
        if proposed is None or not proposed.untimed_seconds:
            return False
        known = msgspec.structs.replace(self._situation, proposed_batch=msgspec.structs.replace(proposed, obstacle=""))
        plans = [Plan(settings=(it,)) for it in self._levers[_BATCH_SIZE].candidates(known)]
        more = budget_for_the_rest(self._trials, self._prover, self._plan, plans) + proposed.untimed_seconds
        self._draft.update(needed_seconds=rounded_up(more))
        self._draft.close("out-of-budget", text)
        return True

    def interrupted(self) -> None:
        """Close the study early, and name the levers that were not decided."""
        for name in self._open:
            if self._draft.outcome_of(name) is None:
                verdict = Skipped(reason="Not tried: the search was interrupted before.")
                self._draft.decide(Outcome(lever=name, verdict=verdict))
        self._find_with_outcomes()
        kept = {it.lever for it in self._draft.study.outcomes if isinstance(it.verdict, Kept)}
        settings = tuple(it for it in self._draft.study.plan.settings if it.lever in kept)
        self._draft.update(plan=Plan(settings=settings))
        is_verified = not settings or self._draft.study.verification is not None
        text = "" if is_verified else f"The whole plan was not verified. {_EACH_BY_ITSELF}"
        self._draft.close("interrupted", text)

    def _find_with_outcomes(self) -> None:
        """Apply the rules again after the trials, whose gains are evidence too."""
        if self._profile is not None:
            note_findings(self._draft, msgspec.structs.replace(self._profile, outcomes=self._draft.study.outcomes))

    # -- all that look likely, at once --------------------------------------------------------

    def _screened(self, prospects: Sequence[Prospect], again: bool) -> Hopeful:
        """The levers that remain to be tried one by one."""
        options = self._trials.options
        possible = self.tries_at_once and is_speed(options.objective)
        at_once = possible and not (self._plan.settings or options.quick or self._tried_at_once)
        # What changes what is learned is tried on top of the rest, whose results are proved without it.
        later = [it for it in prospects if self._changes_learning(it.settings)]
        now = [it for it in prospects if it not in later]
        if not at_once or not now:
            return super()._screened(prospects, again)
        found = by_gain(self._try_at_once(now), now)
        return found | {it.lever.name: [Screened(one) for one in it.settings] for it in later}

    def _changes_learning(self, settings: Sequence[Setting]) -> bool:
        return any(self._prover.proof_for(it) == "behaviour" for it in settings)

    def _try_at_once(self, prospects: Sequence[Prospect]) -> Hopeful:
        self._tried_at_once = True
        noise = noise_of_a_replicate(self._noise)
        expected = forecast(self._trials, self._prover, prospects)
        ahead = expected.then(*self._profile_of_plan(plans_of.EMPTY))
        self._draft.plan_ahead("screening", as_allowed(self._trials, prospects, ahead))
        is_tight = not is_ample(self._trials, expected.seconds or 0.0)
        self._trials.reserve_seconds = reserve_for_first_answer(self._trials)  # no trial comes before the verification
        fits = self._trials.fits(expected.parts[0].seconds or 0.0)
        is_short = not fits or is_too_short_for_a_usual_proof(self._trials)
        if is_short:
            switched = [it.settings[0] for it in split(prospects)[0]]
            self._trials.reserve_seconds = least_reserve_for_first_answer(self._trials, switched)
        later = slow_and_not_asked_for(prospects, self._findings) if is_tight else []
        found = compose(
            *(self._trials, self._draft, prospects, self._prospects_after),
            noise=noise,
            switched_first=(is_short or bool(later)) and switched_promise_more(prospects, self._findings),
            later=later,
        )
        if is_tight:
            found = faster_together(self._trials, found, prospects, noise)
            found = with_a_slow_one(self._trials, self._draft, self._prover, found, prospects, later, noise)
        if not found.parts:
            self._situation = self._baseline_situation
            return found.left
        found = with_the_best_on_top(self._trials, self._draft, self._prover, found, prospects, noise)
        found = with_small_gains(self._trials, self._prover, found, prospects)
        self._trials.reserve_seconds = 0.0  # the verification follows, for which it was reserved
        rest = settling_forecast(self._trials, self._prover, found.parts)
        if rest.launches:
            self._draft.plan_ahead("verification", rest.then(*self._profile_of_plan(plan_of(found.parts))))
        settled = Together(self._trials, self._draft, self._prover).settle(found.parts, found.spare)
        self._compared = self._compared or settled.compared
        self._disturbed = settled.disturbed
        left = {name: list(it) for name, it in settled.undecided.items()} | found.left
        if settled.verification is not None:
            self._adopt(settled, settled.verification, left)
            return self._worth_a_trial(left)
        self._situation = self._baseline_situation
        self._draft.decide_all(settled.outcomes)
        decided = {it.lever for it in settled.outcomes}
        open_ones = {it.lever: list(it.choices) for it in found.parts} | left
        return {name: it for name, it in open_ones.items() if name not in decided}

    def _prospects_after(self, plan: Plan, run: Run) -> Sequence[Prospect]:
        """The levers worth screening on top of this plan."""
        self._situation = situation_with(self._baseline_situation, plan, run, self._levers)
        found, _ = self._prospects([it for it in self._open if it not in {one.lever for one in plan.settings}])
        self._seen_with.update({it.lever.name: plans_of.EMPTY for it in found})
        return found

    def _adopt(self, settled: Settled, verification: Verification, left: Hopeful) -> None:
        """Adopt the plan that was proved at once.

        A lever that was screened is screened again only if its bound is now large enough for one screening to show it,
        and not if it was screened next to this very plan.
        """
        self._plan, self._verified = settled.plan, (settled.plan, verification)
        self._noise += launch_noise(verification.replicates)
        self._situation = situation_with(self._baseline_situation, settled.plan, verification.run, self._levers)
        self._draft.decide_all(settled.outcomes, plan=settled.plan, **shown_by(self._prover, verification))
        for it in settled.outcomes:
            self._close_if_final(it.lever)
        far = self._far(screenings=1)
        screened_names = {it for it in self._open if it in left or not self._is_open(it)}
        for prospect in self._prospects(self._open)[0]:
            name, bound = prospect.lever.name, prospect.bound
            if name in screened_names and (bound is None or bound < far or self._was_next_to_the_plan(name)):
                self._seen_with[name] = self._plan

    def _worth_a_trial(self, left: Hopeful) -> Hopeful:
        """The promising levers that two screenings agree on, or that were not measured.

        The rest might gain a little, which takes more launches to show than it is worth, or nothing by arithmetic.
        """
        worth: Hopeful = {}
        bounds = {it.lever.name: it.bound or math.inf for it in self._prospects(self._open)[0]}
        least = self._far(screenings=2)
        for name, choices in self._worth_its_starts(left).items():
            if bounds.get(name, 0.0) < self._far(screenings=1):
                self._let_go_by_bound(name, bounds.get(name))  # the next pass does that of an unknown one
                continue
            first = self._screened_again(choices[0])
            if isinstance(first, Failure):
                self._note_failed(choices[0], first)
                worth.update({name: choices[1:]} if choices[1:] else {})
            elif first.gain is None or first.gain >= least:
                worth[name] = [first, *choices[1:]]
            elif self._is_open(name):
                verdict = little_in_first_measurements(first, self._trials.options.goal)
                self._draft.decide(Outcome(lever=name, setting=first.setting, verdict=verdict), "screening")
        return worth

    def _let_go_by_bound(self, name: str, bound: float | None) -> None:
        """Decide a lever whose bound is too small for a launch to show."""
        if bound is not None and self._is_open(name):
            self._draft.decide(Outcome(lever=name, verdict=little_by_bound(bound)), "screening")

    def _screened_again(self, first: Screened) -> Screened | Failure:
        """The mean of the first screening and one on top of the plan, if the first shows a gain worth having."""
        if first.gain is None or first.gain < 1 + self._trials.options.delta or first.comparison is not None:
            return first
        second = self._screen(first)
        if isinstance(second, Failure):
            return second
        if second.gain is None:
            return first
        self._seen_with[first.setting.lever] = self._plan
        known = first.bound is not None and second.bound is not None
        bound = max(first.bound or 0.0, second.bound or 0.0) if known else None
        return replace(first, gain=math.sqrt(first.gain * second.gain), bound=bound)

    def _far(self, *, screenings: int) -> float:
        """The gain from which so many screenings are not noise."""
        return (1 + self._trials.options.delta) * (1 + noise_of_a_replicate(self._noise) / math.sqrt(screenings))

    # -- the end ------------------------------------------------------------------------------

    def _ablate(self) -> None:
        proved = self._verified[0].settings if self._verified is not None else ()
        joined = [it.lever for it in self._plan.settings if it not in proved]
        if len(self._plan.settings) < 2 or (proved and len(joined) < 2):
            return  # the last one to join was already compared with the plan without it
        self._trials.reserve_seconds = RESERVE_MARGIN * verification_cost(self._trials, self._prover, self._plan)
        plan, dropped = ablate(self._trials, self._draft, self._plan, self._doubtful(), among=joined)
        for it in dropped:
            self._give_up(it.lever, it.reason, it.comparison)
        self._plan = plan
        self._draft.update(plan=plan)

    def _doubtful(self) -> set[str]:
        """The levers whose own trials do not survive Holm's procedure over all levers tried."""
        adjusted = speed.holm([self._trials.options.goal.p_value(it) for it in self._family.values()])
        return {name for name, p in zip(self._family, adjusted, strict=True) if p > FAMILY_ALPHA}

    def _verify(self) -> None:
        self._trials.reserve_seconds = 0.0
        if self._plan.settings and not self._can_verify() and not self._fall_back(_NO_TIME):
            self._draft.close("out-of-budget", f"No time was left to verify the whole plan. {_EACH_BY_ITSELF}")
            return
        result = self._verification()
        if self._is_no_answer(result) and self._fall_back(_NOT_CONFIRMED):
            result = self._verification()
        if result is None:
            self._close(self._not_claimed())
            return
        if isinstance(result, Failure) and result.cut:
            self._draft.close("out-of-budget", f"The budget ended before the plan was verified. {_EACH_BY_ITSELF}")
            return
        if isinstance(result, Failure):
            self._withdraw(f"The verification of the whole plan failed. {result.reason}")
            self._close(f"The verification of the whole plan failed. {result.reason}")
            return
        self._draft.update(**shown_by(self._prover, result))
        self._draft.judge("account", [result.baseline_run, result.run])
        text = self._why_not(result.comparison)
        if text:
            self._withdraw(text)
        elif self._profile is not None:
            take_profile_of_plan(self._trials, self._draft, self._plan, self._baseline.facts)
        self._close(text)

    def _is_no_answer(self, result: Verification | Failure | None) -> bool:
        """Whether a verification does not support the plan."""
        return isinstance(result, Failure) or (result is not None and bool(self._why_not(result.comparison)))

    def _fall_back(self, reason: str) -> bool:
        """Drop the levers that joined a plan after it was verified; False if there was no such plan."""
        if self._verified is None or self._is_verified():
            return False
        verified, _ = self._verified
        for it in self._plan.settings:
            if it not in verified.settings:
                self._give_up(it.lever, reason, None)
        self._plan = verified
        self._draft.update(plan=verified)
        return True

    def _is_verified(self) -> bool:
        return self._verified is not None and self._verified[0] == self._plan

    def _verification(self) -> Verification | Failure | None:
        """The verification of the plan; None if no lever is left."""
        if self._verified is not None and self._verified[0] == self._plan:
            return self._verified[1]
        quality = self._prove_plan()
        return verify(self._trials, self._draft, self._prover, self._plan, quality) if self._plan.settings else None

    def _can_verify(self) -> bool:
        """Whether the verification still fits, with fewer rounds if necessary: the reserve was an estimate."""
        return self._is_verified() or can_verify(self._trials, self._prover, self._plan)

    def _prove_plan(self) -> Quality | None:
        """Prove that the whole plan produces the same results, and drop its newest lever until that is shown.

        None for a plan of exact levers only, which the verification's own runs prove.
        """
        while self._plan.settings:
            if all(self._prover.proof_for(it) == "exact" for it in self._plan.settings):
                return None
            self._draft.report("parity", "Does the whole plan produce the same results?")
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
        """Why the plan must not be kept; empty if it may be."""
        if verification.quality is not None and not self._acceptable(verification.quality):
            return f"The plan was dropped. {verification.quality.text}"
        objective = self._trials.options.objective
        return why_given_up(verification, judge(objective, verification), objective)

    def _not_claimed(self) -> str:
        """Show what was measured of a plan that supports no claim, since the unmodified script and its repeat differed,
        where no other plan was found; the sentence about it, or none."""
        if self._disturbed is None:
            return ""
        self._draft.update(**shown_by(self._prover, self._disturbed))
        return self._why_not(self._disturbed.comparison)

    def _withdraw(self, reason: str) -> None:
        for it in self._plan.settings:
            self._give_up(it.lever, f"It was kept at first. {reason}", None)
        self._plan = plans_of.EMPTY
        self._draft.update(plan=self._plan)

    def _give_up(self, lever: str, reason: str, comparison: Comparison | None) -> None:
        """Turn a kept lever's outcome into one without gain; its own trial remains unless there is a later one."""
        outcome = self._draft.outcome_of(lever)
        if outcome is None:
            return
        earlier = getattr(outcome.verdict, "comparison", None)
        metric = self._trials.options.objective.metric
        verdict = NoGain(comparison=comparison or earlier, metric=metric, reason=reason)
        self._draft.decide(msgspec.structs.replace(outcome, verdict=verdict))
