"""Measure levers that need a process of their own once more, on top of levers that a process can switch.

What such a lever saves is a larger share of a faster step. Where the chosen levers make its cause worse, it saves more
than it did by itself: in half precision a step allocates more tensors, for which the system must provide memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.findings import precedence
from hotlap.experiment.prove import Prover
from hotlap.experiment.trials import Trials
from hotlap.procedures.budget import RESERVE_MARGIN
from hotlap.procedures.compose import Composition, Part, beyond_noise, may_gain, plan_of, split
from hotlap.procedures.prospects import Prospect
from hotlap.procedures.screen import WORTH_SLOW_STARTS, Screened, affordable_screening, screen, screenings
from hotlap.procedures.verify import LAST_RESORT_ROUNDS, verification_cost


def with_the_best_on_top(
    trials: Trials, draft: StudyDraft, prover: Prover, found: Composition, prospects: Sequence[Prospect], noise: float
) -> Composition:
    """The same levers and, if one replicate on top of them shows its gain, the best of those that need a process of
    their own and were not chosen.

    The replicate has as many arms as fit, the most promising levers, and is taken only if the proof and the
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
    if not best or (seen[best][0].gain or 0.0) < beyond_noise(trials, noise):
        return Composition(found.parts, left)
    return Composition((*found.parts, Part(tuple(left.pop(best)))), left)


def _promising(
    trials: Trials, draft: StudyDraft, found: Composition, prospects: Sequence[Prospect], noise: float
) -> Sequence[Prospect]:
    """The levers that may be worth having on top, with their best setting, most promising first.

    Those that answer a finding come first, and of these and of the others those that were measured, by their gains.
    """
    freed = math.prod(it.comparison.speed.speedup.value for it in found.parts if it.comparison is not None)
    firsts = {it.lever.name: found.left[it.lever.name][0] for it in split(prospects)[1] if it.lever.name in found.left}
    worth = {name: it for name, it in firsts.items() if _promises(trials, it, freed, noise)}
    answers = {it: any(precedence(draft.study.findings, it)) for it in worth}
    ordered = sorted(worth, key=lambda it: (answers[it], worth[it].gain or 0.0), reverse=True)
    by_name = {it.lever.name: it for it in prospects}
    return [replace(by_name[it], settings=(worth[it].setting,)) for it in ordered]


def _promises(trials: Trials, first: Screened, freed: float, noise: float) -> bool:
    """Whether a lever may be worth having in a step that is ``freed`` times as fast; if the script starts slowly,
    whether it is likely to be."""
    if first.gain is None:
        return not trials.starts_slowly
    if trials.starts_slowly:
        return (first.gain - 1) * freed >= WORTH_SLOW_STARTS - 1
    return may_gain(replace(first, gain=first.gain * (1 + noise)), freed, trials.options.delta)
