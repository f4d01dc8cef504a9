"""Measure levers that may gain more next to those that were chosen once more, on top of these.

What a lever with a process of its own saves is a larger share of a faster step. Where the chosen levers make its cause
worse, it saves more than it did by itself: in half precision a step allocates more tensors, for which the system must
provide memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hotlap import plan as plans_of
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.findings import precedence
from hotlap.experiment.prove import Prover
from hotlap.experiment.trials import Trials
from hotlap.measure.speed import error_within_launch
from hotlap.procedures.budget import RESERVE_MARGIN
from hotlap.procedures.combine import FEW, NEUTRAL
from hotlap.procedures.compose import Composition, one_for_each_cause, split, switched_on_top
from hotlap.procedures.joining import with_kept_memory
from hotlap.procedures.parts import Part, beyond_noise, may_gain, plan_of
from hotlap.procedures.prospects import Prospect
from hotlap.procedures.screen import MOST_NOISE, WORTH_SLOW_STARTS, Hopeful, Screened, screen
from hotlap.procedures.screenings import Screening, affordable_screening, screenings
from hotlap.procedures.verify import last_resort_rounds, verification_cost
from hotlap.records import Move, Plan

_STANDARD_ERROR = 0.5
"""As a share of the noise, which is two standard errors."""


def with_the_best_on_top(
    trials: Trials, draft: StudyDraft, prover: Prover, found: Composition, prospects: Sequence[Prospect], noise: float
) -> Composition:
    """The same levers and, if launches on top of them show its gain, the best of those that need a process of their own
    and were not chosen, for each cause that these answer.

    The most promising of these levers, as many as fit, have one replicate. Those that gain too, but less than another
    one for the same cause, have one more on top of that. A lever is taken only if the proof and the verification of the
    levers chosen so far still fit after it. Likely levers are measured together where there is no time for each of
    them, or where several look faster but none beyond noise. ``noise`` is that of one replicate, as a share.
    """
    if not any(it.comparison is not None for it in found.parts):
        return found
    found = with_kept_memory(trials, prover, found, prospects, noise)
    found = _with_switched_ones(trials, draft, prover, found, prospects, noise)
    promising = _promising(trials, draft, prover, found, prospects, noise)
    is_limited = bool(trials.options.goal.objective.limits)
    likely = [it for it in promising if not is_limited and _is_likely(draft, prover, it)]
    if len(likely) > max(1, _measured_at_once(trials, prover, found, promising)):
        return _with_all(trials, draft, prover, found, likely, noise)
    grown, rivals = _with_the_best(trials, draft, prover, found, promising, noise)
    both, _ = _with_the_best(trials, draft, prover, grown, rivals, noise)
    grown = replace(both, spare=grown.spare)
    small = [it for it in likely if _looked_faster(trials, grown.left.get(it.lever.name))]
    return _with_all(trials, draft, prover, grown, small, noise) if len(small) > 1 else grown


def _with_switched_ones(
    trials: Trials, draft: StudyDraft, prover: Prover, found: Composition, prospects: Sequence[Prospect], noise: float
) -> Composition:
    """The same levers and those that a process can switch and that looked faster, if one launch on top of the chosen
    ones shows their gain: next to half precision, another layout of memory gives more than without it.

    Where the rounds of a lever differed by more than launches do, it looked faster by chance. So may one that gains
    little in this launch, which is the second one to look.
    """
    firsts = {name: choices[0] for name, choices in found.left.items()}
    least = WORTH_SLOW_STARTS if trials.starts_slowly else 1 + trials.options.delta

    def looked_faster(name: str) -> bool:
        first = firsts.get(name)
        if first is None or first.comparison is None or (first.gain or 0.0) < least:
            return False
        return error_within_launch(first.comparison.speed) <= MOST_NOISE

    switched = {it.lever.name: it for it in split(prospects)[0] if looked_faster(it.lever.name)}
    names = sorted(switched, key=lambda it: firsts[it].gain or 0.0, reverse=True)[:FEW]
    again = [replace(switched[it], settings=(firsts[it].setting,)) for it in names]
    if not again:
        return found
    plan = plan_of(found.parts)
    grown = plans_of.with_move(plan, Move(settings=tuple(it.settings[0] for it in again)))
    trials.reserve_seconds = RESERVE_MARGIN * verification_cost(trials, prover, grown, last_resort_rounds(trials))
    added, not_added = switched_on_top(trials, draft, plan, again, noise, to_come=1)
    gaining_more = [it for it in added if it.comparison and it.comparison.speed.speedup.value >= 1 + NEUTRAL]
    gaining_little = {it.lever: list(it.choices) for it in added if it not in gaining_more}
    left = {name: it for name, it in found.left.items() if name not in names} | not_added | gaining_little
    return replace(found, parts=(*found.parts, *gaining_more), left=left)


def _looked_faster(trials: Trials, choices: Sequence[Screened] | None) -> bool:
    return choices is not None and (choices[0].gain or 0.0) >= 1 + trials.options.delta


def _is_likely(draft: StudyDraft, prover: Prover, it: Prospect) -> bool:
    """Whether a lever answers a finding and costs no proof."""
    return prover.proof_for(it.settings[0]) == "exact" and any(precedence(draft.study.findings, it.lever.name))


def _measured_at_once(trials: Trials, prover: Prover, found: Composition, promising: Sequence[Prospect]) -> int:
    """How many of these levers the next replicate can measure, each by itself."""
    screening = _next_screening(trials, prover, found, promising)
    return 0 if screening is None else screening.settings


def _next_screening(
    trials: Trials, prover: Prover, found: Composition, promising: Sequence[Prospect]
) -> Screening | None:
    """The replicate on top of the chosen levers for which there is time before their proof and verification."""
    plan = plan_of(found.parts)
    trials.reserve_seconds = RESERVE_MARGIN * verification_cost(trials, prover, plan, last_resort_rounds(trials))
    return affordable_screening(trials, screenings(trials, plan, [it.settings[0] for it in promising]))


def _with_all(
    trials: Trials, draft: StudyDraft, prover: Prover, found: Composition, likely: Sequence[Prospect], noise: float
) -> Composition:
    """The same levers and all of these, if one replicate with and without all of them shows a gain by a standard error
    and the proof and verification still fit, as they are expected to be, without a margin."""
    plan = plan_of(found.parts)
    move = Move(settings=tuple(it.settings[0] for it in likely))
    grown = plans_of.with_move(plan, move)
    trials.reserve_seconds = verification_cost(trials, prover, grown, last_resort_rounds(trials))
    screening = affordable_screening(trials, screenings(trials, plan, move.settings[:1]))
    if screening is None:
        return found
    words = ", ".join(map(plans_of.describe, move.settings))
    draft.report("screening", f"A first measurement of {words} together", replicates_planned=1)
    turns = trials.take_replicate(
        [plan, grown], rounds=screening.rounds, purpose=f"together {plans_of.key(grown)}", shape=screening.shape
    )
    if isinstance(turns, Failure):
        return found
    gain = trials.options.goal.seen(turns, 1)
    if gain is None or gain < beyond_noise(trials, _STANDARD_ERROR * noise):
        return found
    names = {it.lever for it in move.settings}
    added = (Part(tuple(found.left[it.lever])) for it in move.settings)
    left = {name: it for name, it in found.left.items() if name not in names}
    spare = tuple(it for it in found.spare if it.lever not in names)
    return replace(found, parts=(*found.parts, *added), left=left, spare=spare)


def _with_the_best(
    trials: Trials, draft: StudyDraft, prover: Prover, found: Composition, promising: Sequence[Prospect], noise: float
) -> tuple[Composition, Sequence[Prospect]]:
    """The levers with the best of these on top, and those that gain, but less than another one for the same cause."""
    plan, screening = plan_of(found.parts), _next_screening(trials, prover, found, promising)
    if not promising or screening is None:
        return found, ()
    taken = {it.lever.name: it for it in promising[: screening.settings]}
    seen = screen(trials, draft, plan, list(taken.values()), noise=noise, again=True)
    exact_ones = {name for name, (first, *_) in seen.items() if prover.proof_for(first.setting) == "exact"}
    likely = {name for name, it in taken.items() if _is_likely(draft, prover, it)}
    seen, enough = _seen_twice(trials, draft, plan, taken, seen, noise, likely)
    gains = {name: choices[0].gain or 0.0 for name, choices in seen.items()}
    clear, least = {it: gains[it] for it in gains if gains[it] >= enough[it]}, 1 + trials.options.delta
    shown = one_for_each_cause(taken, clear)
    exact = {it: gain for it, gain in gains.items() if it in exact_ones}
    spare = one_for_each_cause(taken, {it: gain for it, gain in exact.items() if gain >= least}, besides=shown)
    open_ones = {name: it for name, it in found.left.items() if name not in taken} | seen
    grown = Composition(
        (*found.parts, *(Part(tuple(seen[it])) for it in shown)),
        {name: it for name, it in open_ones.items() if name not in shown},
        tuple(Part(tuple(seen[it])) for it in spare),
    )
    return grown, [taken[it] for it in sorted(clear, key=clear.__getitem__, reverse=True) if it not in shown]


def _seen_twice(
    trials: Trials,
    draft: StudyDraft,
    plan: Plan,
    taken: Mapping[str, Prospect],
    seen: Hopeful,
    noise: float,
    likely: Collection[str],
) -> tuple[Hopeful, Mapping[str, float]]:
    """The same with the mean of two replicates for gains that may be noise, and for each lever the gain that is not.

    Those are gains of less than twice the noise of one replicate, and of at least the noise of that mean: two standard
    errors. Of ``likely`` levers, which answer a finding and cost no proof, one is enough. Without time for a
    second replicate, no such gain is: in the verification a lever may take as many launches as the plan.
    """
    once, of_mean = beyond_noise(trials, noise), noise / math.sqrt(2)
    twice = {it: beyond_noise(trials, of_mean * (_STANDARD_ERROR if it in likely else 1.0)) for it in seen}
    doubtful = [name for name, (first, *_) in seen.items() if twice[name] <= (first.gain or 0.0) < once * (1 + noise)]
    again = screen(trials, draft, plan, [taken[it] for it in doubtful], noise=noise, again=True) if doubtful else {}
    seconds = {name: second.gain for name, (second, *_) in again.items() if second.gain is not None}
    found = {name: it for name, it in seen.items() if name not in doubtful or name in again}
    for name, gain in seconds.items():
        first = seen[name][0]
        found[name] = [replace(first, gain=math.sqrt((first.gain or 0.0) * gain))]
    enough = dict.fromkeys(found, once) | dict.fromkeys(doubtful, math.inf) | {it: twice[it] for it in seconds}
    return found, enough


def _promising(
    trials: Trials, draft: StudyDraft, prover: Prover, found: Composition, prospects: Sequence[Prospect], noise: float
) -> Sequence[Prospect]:
    """The levers that may be worth having on top, with their best setting, most promising first.

    Those that answer a finding come first, and of these and of the others those that were measured, by their gains; of
    those that were not, first the ones that are made for the fewest causes.
    """
    freed = math.prod(it.comparison.speed.speedup.value for it in found.parts if it.comparison is not None)
    firsts = {name: choices[0] for name, choices in found.left.items()}
    launched = [it for it in split(prospects)[1] if it.lever.name in firsts]

    def promises(it: Prospect) -> bool:
        """Of a likely lever, which needs less evidence, less must be possible."""
        own_noise = noise * (_STANDARD_ERROR if _is_likely(draft, prover, it) else 1.0)
        return _promises(trials, it.bound, firsts[it.lever.name], freed, own_noise)

    worth = [it for it in launched if promises(it)]

    def order(it: Prospect) -> tuple[bool, float, int]:
        answers = any(precedence(draft.study.findings, it.lever.name))
        return answers, firsts[it.lever.name].gain or 0.0, -len(it.lever.addresses)

    return [replace(it, settings=(firsts[it.lever.name].setting,)) for it in sorted(worth, key=order, reverse=True)]


def _promises(trials: Trials, bound: float | None, first: Screened, freed: float, noise: float) -> bool:
    """Whether a lever may be worth having in a step that is ``freed`` times as fast, and one replicate show it; if the
    script starts slowly, whether it is likely to be."""
    if bound is not None and _largest_on_top(bound, freed) < beyond_noise(trials, noise):
        return False
    if first.gain is None:
        return not trials.starts_slowly
    if trials.starts_slowly:
        return (first.gain - 1) * freed >= WORTH_SLOW_STARTS - 1
    return may_gain(replace(first, gain=first.gain * (1 + noise)), freed, trials.options.delta)


def _largest_on_top(bound: float, freed: float) -> float:
    """The largest gain of a lever in a step that is ``freed`` times as fast, if what it can save stays the same."""
    left = 1 - freed * (1 - 1 / bound)
    return 1 / left if left > 0 else math.inf
