"""Prove promising levers as one plan: the same results, then fresh launches compared with the unmodified script.

Neither a trial for each lever nor a later verification is needed, since no data that chose the plan is used again. If
the results differ, the responsible lever is found by bisection. Exact levers need no proof besides the verification:
where that of the others stays open, they are verified without them. Levers that had a process of their own when they
were chosen are left out one by one in the same replicates, as far as there is room for that (``own_arms.py``), which
shows the gain of each next to the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.costs import FEWEST_ROUNDS
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.prove import Prover
from hotlap.experiment.trials import Trials
from hotlap.measure import speed
from hotlap.measure.parity.verdict import is_open_for_every_lever
from hotlap.objective import judge
from hotlap.procedures.own_arms import arms_that_fit
from hotlap.procedures.parts import Part, plan_of
from hotlap.procedures.screen import Screened
from hotlap.procedures.verdicts import as_a_whole, no_gain, of_quality, unverified
from hotlap.procedures.verify import Verification, last_resort_rounds, measure_plan, verification_cost
from hotlap.records import (
    Comparison,
    Failed,
    Kept,
    NoGain,
    Outcome,
    Plan,
    Quality,
    QualityLost,
    Setting,
    Verdict,
)

_FAMILY_ALPHA = 0.05
_NOT_MEASURED = "what it gives by itself was not measured"
_MOST_PLANS = 2
"""How many plans are measured: one, and that plan without a useless lever."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcomes of levers that were tried at once.

    ``plan`` is what was kept, with its verification; a lever without an outcome is undecided, and may be tried by
    itself: ``undecided`` are those for whose proof no time was left. ``compared``: the plan was timed on fresh
    launches. ``disturbed`` supports no claim, since the unmodified script and its repeat differed.
    """

    outcomes: tuple[Outcome, ...] = ()
    plan: Plan = plans_of.EMPTY
    verification: Verification | None = None
    compared: bool = False
    undecided: Mapping[str, Sequence[Screened]] = field(default_factory=dict)
    disturbed: Verification | None = None


class Together:
    """Proves one move."""

    def __init__(self, trials: Trials, draft: StudyDraft, prover: Prover) -> None:
        self._trials = trials
        self._draft = draft
        self._prover = prover
        self._outcomes: dict[str, Outcome] = {}
        self._undecided: dict[str, Sequence[Screened]] = {}
        self._began = trials.spent_seconds
        self._count = 1
        self._compared = False

    def settle(self, parts: Sequence[Part], spare: Sequence[Part] = ()) -> Settled:
        """Prove that these levers keep the results and measure them; repeat without a lever that adds nothing.

        ``spare`` are exact levers that join what is left of a plan of which not all could be proved.
        """
        self._count = len(parts)
        for left_to_measure in reversed(range(_MOST_PLANS)):
            proved = self._prove(parts)
            if spare and (proved is None or len(proved[0]) < len(parts)):
                parts, spare = [*(proved[0] if proved is not None else ()), *spare], ()
                proved = self._prove(parts)
            if proved is None or not (proved[0] and self._is_worth_launches(proved[0])):
                break
            parts, quality = proved
            without = arms_that_fit(self._trials, parts)
            found = measure_plan(self._trials, self._draft, plan_of(parts), without) if without is not None else None
            if found is None or isinstance(found, Failure):
                self._leave_compared(parts, quality)
                break
            self._compared = True
            known = quality if quality is not None else self._prover.prove_exact(found.replicates)
            idle = self._idle(found, known) if left_to_measure else None
            if idle is None:
                return self._judged(parts, found.with_quality(known))
            self._note(idle, NoGain(comparison=found.parts[idle.lever], reason=_why_idle(found.parts[idle.lever])))
            parts = [it for it in parts if it.setting != idle]
        return self._settled()

    # -- the same results ---------------------------------------------------------------------

    def _prove(self, parts: Sequence[Part]) -> tuple[Sequence[Part], Quality | None] | None:
        """The levers that together keep the results, with the proof (None if the timing runs will show it).

        None if that cannot be shown for any with the remaining budget.
        """
        while parts:
            plan = plan_of(parts)
            if all(map(self._is_exact, parts)):
                return parts, None
            if not self._fits(plan, at_first_sight=True):
                return self._exact_alone(parts, "The budget left no time to compare its results.")
            self._draft.report("parity", "Does the plan produce the same results?")
            quality = self._prover.prove(plan)
            if not isinstance(quality, Failure) and self._is_acceptable(quality):
                return parts, quality
            if not isinstance(quality, Failure) and is_open_for_every_lever(quality):
                parts = self._without_unverified(parts, quality)
                continue
            blamed = self._hidden(parts) if _is_hidden(quality) else []
            blamed = blamed or self._culprit(parts)
            if not blamed:
                return self._exact_alone(parts, _of_the_whole(parts, quality))
            for part, found in blamed:
                parts = self._without_culprit(parts, part, found)
        return (), None

    def _is_exact(self, part: Part) -> bool:
        return self._prover.proof_for(part.setting) == "exact"

    def _exact_alone(self, parts: Sequence[Part], doubt: str) -> tuple[Sequence[Part], None] | None:
        """The exact levers, which are proved by their verification; the others stay undecided, with this doubt."""
        exact = [it for it in parts if self._is_exact(it)]
        rest = [it for it in parts if it not in exact]
        self._undecided |= {it.lever: [replace(one, doubt=doubt) for one in it.choices] for it in rest}
        return (exact, None) if exact else None

    def _without_unverified(self, parts: Sequence[Part], found: Quality) -> Sequence[Part]:
        """The exact levers; the script allows no proof of the others."""
        for part in parts:
            if not self._is_exact(part):
                self._note(part.setting, unverified(part.comparison, part.gain, found))
        return [it for it in parts if self._is_exact(it)]

    def _is_acceptable(self, quality: Quality) -> bool:
        if quality.verdict == "not-verified":
            return self._trials.options.accept_unverified
        return quality.verdict != "lost"

    def _hidden(self, parts: Sequence[Part]) -> list[tuple[Part, Quality | Failure]]:
        """Where the script's own noise hides what levers change, those that cannot be verified by themselves either,
        with their proofs. Most are such, so all are launched at the same time; none if the budget does not allow it.
        """
        sound = [it for it in parts if self._is_exact(it)]
        suspects = [it for it in parts if it not in sound]
        plans = [_plan_among(parts, [*sound, it]) for it in suspects]
        if len(suspects) < 2 or not self._fits(*plans):
            return []
        self._prover.prepare(plans)
        found = [(part, self._prover.prove(plan)) for part, plan in zip(suspects, plans, strict=True)]
        return [(part, quality) for part, quality in found if self._is_broken(quality)]

    def _culprit(self, parts: Sequence[Part]) -> list[tuple[Part, Quality | Failure]]:
        """The lever whose results differ or cannot be verified, with its proof; none if the budget does not allow the
        search, or each passes with those that do.

        Of levers that together do not keep the results, half are proved next to those that do: either they contain the
        culprit, or they join the latter and it is among the rest. Those that change no rounding are beyond suspicion.
        """
        sound = [it for it in parts if self._is_exact(it)]
        suspects = [it for it in parts if it not in sound]
        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            plan = _plan_among(parts, [*sound, *half])
            if not self._fits(plan):
                return []
            if self._is_broken(self._prover.prove(plan)):
                suspects = half
            else:
                sound, suspects = [*sound, *half], suspects[len(half) :]
        last = self._prover.prove(_plan_among(parts, [*sound, *suspects]))
        return [(suspects[0], last)] if self._is_broken(last) else []

    def _is_broken(self, found: Quality | Failure) -> bool:
        return isinstance(found, Failure) or not self._is_acceptable(found)

    def _without_culprit(self, parts: Sequence[Part], culprit: Part, found: Quality | Failure) -> Sequence[Part]:
        """The levers with the culprit's next best setting, or without it."""
        if isinstance(found, Failure):
            verdict: Verdict = Failed(ending=found.ending, reason=found.reason)
        elif found.verdict == "not-verified":
            verdict = unverified(culprit.comparison, culprit.choices[0].gain, found)
        else:
            comparison = culprit.comparison
            if comparison is not None:
                comparison = msgspec.structs.replace(comparison, quality=found)
            verdict = QualityLost(comparison=comparison, speedup=culprit.choices[0].gain, reason=found.text)
        self._note(culprit.setting, verdict)
        rest = culprit.choices[1:]
        if rest and (rest[0].gain or 0.0) >= 1 + self._trials.options.delta:
            return [Part(rest) if it is culprit else it for it in parts]
        return [it for it in parts if it is not culprit]

    def _fits(self, *plans: Plan, at_first_sight: bool = False) -> bool:
        """Whether the proofs of these plans fit, and a verification after them; ``at_first_sight``: if results turn out
        to be the same without further runs."""
        cost = self._prover.least_cost if at_first_sight else self._prover.cost
        verification = verification_cost(self._trials, None, plans[0], last_resort_rounds(self._trials))
        return self._trials.fits(sum(map(cost, plans)) + verification)

    # -- fresh launches -----------------------------------------------------------------------

    def _is_worth_launches(self, parts: Sequence[Part]) -> bool:
        """Whether some of them gained in a first measurement, or they are what is left of a plan that was measured.
        Those that only joined others are not worth it alone."""
        least = 1 + self._trials.options.delta
        return self._compared or any(not it.joined or (it.gain or 0.0) >= least for it in parts)

    @property
    def _fewest_rounds(self) -> int:
        return min(self._trials.rounds, FEWEST_ROUNDS)

    def _idle(self, found: Verification, quality: Quality) -> Setting | None:
        """A lever without a proven gain next to the others.

        None if there is none, if the plan is not better, or if there is no time to measure the plan without it.
        """
        is_better = judge(self._trials.options.objective, found.comparison).verdict == "better"
        if not is_better or not self._is_acceptable(quality):
            return None
        idle = [it for it in _held_to_family(found.parts).values() if not self._may_stay(it)]
        if not idle:
            return None
        worst = min(idle, key=lambda it: it.speed.speedup.value)
        rest = worst.baseline
        if not self._trials.fits(verification_cost(self._trials, self._prover, rest, self._fewest_rounds)):
            return None
        return _added_in(worst)

    def _may_stay(self, own: Comparison) -> bool:
        """Whether launches with and without a lever show that it adds to the others. An exact one, which costs no
        proof, may stay if it looks faster: to verify the plan without it takes as long again."""
        looks_faster = own.speed.speedup.value >= 1 + self._trials.options.delta
        is_exact = self._prover.proof_for(_added_in(own)) == "exact"
        return own.speed.verdict == "faster" or (is_exact and looks_faster)

    # -- verdicts -----------------------------------------------------------------------------

    def _judged(self, parts: Sequence[Part], found: Verification) -> Settled:
        options, comparison = self._trials.options, found.comparison
        judgement = judge(options.objective, comparison)
        quality = comparison.quality
        assert quality is not None, "with_quality() was called"
        if judgement.verdict != "better":
            verdict = no_gain(comparison, options.goal, judgement=judgement)
            for part in parts:
                self._note(part.setting, as_a_whole(verdict, _others(parts, part)))
            return self._settled(disturbed=None if comparison.speed.baseline_agrees else found)
        shown = _held_to_family(found.parts)
        if not self._is_acceptable(quality):
            if len(parts) == 1:
                self._note(parts[0].setting, of_quality(comparison, quality, options.accept_unverified))
            elif quality.verdict == "not-verified":  # of exact levers: the script allows no proof of any
                for part in parts:
                    own = shown.get(part.lever) or part.comparison
                    self._note(part.setting, unverified(own, part.gain, quality))
            return self._settled()
        for part in parts:
            own = shown.get(part.lever) or part.comparison
            self._note(
                part.setting,
                _kept(part, own, comparison, quality, _others(parts, part), options.accept_unverified),
                together_with=_others(parts, part),
            )
        return self._settled(plan_of(parts), found)

    def _leave_compared(self, parts: Sequence[Part], quality: Quality | None) -> None:
        """Leave levers undecided that were not measured after their results were compared, if these were."""
        if quality is not None:
            doubt = _of_all(parts, quality.text)
            self._undecided |= {it.lever: [replace(one, doubt=doubt) for one in it.choices] for it in parts}

    def _settled(
        self,
        plan: Plan = plans_of.EMPTY,
        verification: Verification | None = None,
        disturbed: Verification | None = None,
    ) -> Settled:
        outcomes = tuple(self._outcomes.values())
        undecided = {name: it for name, it in self._undecided.items() if name not in self._outcomes}
        return Settled(outcomes, plan, verification, self._compared, undecided, disturbed)

    def _note(self, setting: Setting, verdict: Verdict, together_with: tuple[str, ...] = ()) -> None:
        seconds = (self._trials.spent_seconds - self._began) / self._count
        self._outcomes[setting.lever] = Outcome(
            lever=setting.lever, setting=setting, verdict=verdict, together_with=together_with, trial_seconds=seconds
        )


def _plan_among(parts: Sequence[Part], chosen: Sequence[Part]) -> Plan:
    """The plan of these parts, in the order that they have among all: without the others it needs no other proof."""
    return plan_of([it for it in parts if it in chosen])


def _is_hidden(quality: Quality | Failure) -> bool:
    """Whether results could not be verified, rather than that they differ."""
    return not isinstance(quality, Failure) and quality.verdict == "not-verified"


def _added_in(own: Comparison) -> Setting:
    """The setting that the candidate has more than the plan it is compared with."""
    return next(it for it in own.candidate.settings if it not in own.baseline.settings)


def _others(parts: Sequence[Part], part: Part) -> tuple[str, ...]:
    return tuple(it.lever for it in parts if it is not part)


def _held_to_family(parts: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """The levers whose gains on launches may be claimed together (Holm)."""
    held = speed.hold_to_family([it.speed for it in parts.values()], alpha=_FAMILY_ALPHA) if parts else ()
    return {
        name: msgspec.structs.replace(it, speed=found) for (name, it), found in zip(parts.items(), held, strict=True)
    }


def _kept(
    part: Part,
    own: Comparison | None,
    whole: Comparison,
    quality: Quality,
    others: tuple[str, ...],
    accept_unverified: bool,
) -> Verdict:
    """A lever of a verified plan, with the evidence for its share."""
    if not others:
        return of_quality(whole, quality, accept_unverified)
    comparison = msgspec.structs.replace(own or whole, quality=quality)
    verdict = of_quality(comparison, quality, accept_unverified)
    if not isinstance(verdict, Kept):
        return verdict
    first_ratio = part.gain if own is None else None
    return replace_reason(msgspec.structs.replace(verdict, first_ratio=first_ratio), _where_from(part, own, others))


def replace_reason(verdict: Kept, sentence: str) -> Kept:
    """The verdict with a sentence before its reason."""
    return msgspec.structs.replace(verdict, reason=f"{sentence} {verdict.reason}".strip())


def _where_from(part: Part, own: Comparison | None, others: tuple[str, ...]) -> str:
    names = ", ".join(others)
    if own is None and part.joined and (part.gain or 0.0) < 1:
        first = f"by itself it showed {part.gain:.2f}x in one replicate" if part.gain else _NOT_MEASURED
        return f"Verified together with {names}: the process that switched levers had it too; {first}."
    if own is None and part.gain is not None:
        first = f"its own share was seen in a first measurement only (one replicate, no interval): {part.gain:.2f}x"
        return f"Verified together with {names}; {first}."
    if own is None:
        return f"Verified together with {names}; {_NOT_MEASURED}."
    if own.within_launch and own.speed.verdict != "faster":
        return f"Verified together with {names}; its own share was not shown within one launch."
    if own.within_launch:
        return f"Its own share was measured within one launch, the whole over fresh launches, together with {names}."
    if own.speed.verdict == "faster":
        return f"Its own share is that of fresh launches with and without it, next to {names}."
    return f"Verified together with {names}; its own share was not shown in fresh launches with and without it."


def _of_the_whole(parts: Sequence[Part], found: Quality | Failure) -> str:
    """What the proof of all levers together showed, as a doubt about each of them."""
    shown = _of_all(parts, found.reason if isinstance(found, Failure) else found.text)
    which = " The budget left no time to find out which of them is responsible." if len(parts) > 1 else ""
    return f"{shown}{which}"


def _of_all(parts: Sequence[Part], shown: str) -> str:
    """What was shown of these levers together."""
    names = ", ".join(it.lever for it in parts)
    return f"Of {names} together: {shown}" if len(parts) > 1 else shown


def _why_idle(comparison: Comparison) -> str:
    ratio = comparison.speed.speedup
    return (
        "It looked faster in a first measurement, but fresh launches did not show that it adds to the other levers: "
        f"{ratio.value:.3f}x ({ratio.low:.3f} to {ratio.high:.3f})."
    )
