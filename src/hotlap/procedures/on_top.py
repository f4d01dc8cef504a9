"""Measure levers that need a process of their own once more, on top of levers that a process can switch.

What such a lever saves is a larger share of a faster step. Where the chosen levers make its cause worse, it saves more
than it did by itself: in half precision a step allocates more tensors, for which the system must provide memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.findings import precedence
from hotlap.experiment.prove import Prover
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever
from hotlap.procedures.budget import RESERVE_MARGIN
from hotlap.procedures.compose import CLEAR, Composition, Part, beyond_noise, may_gain, plan_of, split
from hotlap.procedures.prospects import Prospect
from hotlap.procedures.screen import WORTH_SLOW_STARTS, Screened, affordable_screening, screen, screen_one, screenings
from hotlap.procedures.verify import LAST_RESORT_ROUNDS, verification_cost
from hotlap.records import Plan


def with_the_best_on_top(
    trials: Trials, draft: StudyDraft, prover: Prover, found: Composition, prospects: Sequence[Prospect], noise: float
) -> Composition:
    """The same levers and, if launches on top of them show its gain, the best of those that need a process of their own
    and were not chosen.

    The most promising of these levers, as many as fit, have one replicate. It is taken only if the proof and the
    verification of the levers chosen so far still fit after it. ``noise`` is that of one replicate, as a share.
    """
    if not any(it.comparison is not None for it in found.parts):
        return found
    plan = plan_of(found.parts)
    rounds = min(trials.rounds, LAST_RESORT_ROUNDS)
    trials.reserve_seconds = RESERVE_MARGIN * verification_cost(trials, prover, plan, rounds)
    promising = _promising(trials, draft, found, prospects, noise)
    screening = affordable_screening(trials, screenings(trials, plan, [it.settings[0] for it in promising]))
    if not promising or screening is None:
        return found
    taken = promising[: screening.settings]
    seen = screen(trials, draft, plan, taken, noise=noise, again=True)
    left = {name: it for name, it in found.left.items() if name not in {one.lever.name for one in taken}} | seen
    best = next(iter(seen), "")
    lever = next((it.lever for it in taken if it.lever.name == best), None)
    if lever is None or not _is_shown(trials, draft, plan, lever, seen[best][0], noise):
        return Composition(found.parts, left)
    return Composition((*found.parts, Part(tuple(left.pop(best)))), left)


def _is_shown(trials: Trials, draft: StudyDraft, plan: Plan, lever: Lever, first: Screened, noise: float) -> bool:
    """Whether a replicate shows a gain on top of the plan, or the mean of two where noise may explain that of one: in
    the verification a lever takes as many launches as the plan."""
    far = beyond_noise(trials, noise)
    if first.gain is None or first.gain < far or first.gain >= CLEAR:
        return first.gain is not None and first.gain >= CLEAR
    second = screen_one(trials, draft, plan, lever, first.setting)
    if isinstance(second, Failure) or second.gain is None:
        return False
    return math.sqrt(first.gain * second.gain) >= far


def _promising(
    trials: Trials, draft: StudyDraft, found: Composition, prospects: Sequence[Prospect], noise: float
) -> Sequence[Prospect]:
    """The levers that may be worth having on top, with their best setting, most promising first.

    Those that answer a finding come first, and of these and of the others those that were measured, by their gains; of
    those that were not, first the ones that are made for the fewest causes.
    """
    freed = math.prod(it.comparison.speed.speedup.value for it in found.parts if it.comparison is not None)
    firsts = {name: choices[0] for name, choices in found.left.items()}
    launched = [it for it in split(prospects)[1] if it.lever.name in firsts]
    worth = [it for it in launched if _promises(trials, it.bound, firsts[it.lever.name], freed, noise)]

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
