"""Levers that start slowly (they compile), where time is short.

What they take to start may cost the plan of the other levers, so those that answer no finding wait until that plan is
verified. But where the others promise no more than noise explains, one of them is measured before, in the time that a
proof and a verification leave: it may be all that is to be gained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.findings import precedence
from hotlap.experiment.prove import Prover
from hotlap.experiment.trials import Trials
from hotlap.procedures.budget import RESERVE_MARGIN, least_reserve_for_first_answer
from hotlap.procedures.compose import Composition, split, switched_on_top
from hotlap.procedures.joining import with_kept_memory
from hotlap.procedures.parts import CLEAR, plan_of
from hotlap.procedures.prospects import Prospect
from hotlap.procedures.screen import Screened
from hotlap.procedures.verify import last_resort_rounds, verification_cost
from hotlap.records import Failed, Finding


def slow_and_not_asked_for(prospects: Sequence[Prospect], findings: Sequence[Finding]) -> list[Prospect]:
    """The levers that start slowly and answer no finding; none if there are no others."""
    slow = [it for it in prospects if it.lever.starts_slowly and not any(precedence(findings, it.lever.name))]
    return slow if len(slow) < len(prospects) else []


def with_a_slow_one(
    trials: Trials,
    draft: StudyDraft,
    prover: Prover,
    found: Composition,
    prospects: Sequence[Prospect],
    waiting: Sequence[Prospect],
    noise: float,
) -> Composition:
    """The same levers and, if these promise no clear gain, the first of those that wait, if it adds to them.

    It is measured in one launch with its first setting; where that fails, the others remain. It is taken only if the
    proof, where its results are good at first sight, and the verification still fit after that. That launch leaves time
    for one with the levers of the ``prospects`` that need a process of their own. Levers whose launch the budget cut
    before it showed anything come first.
    """
    found = with_kept_memory(trials, prover, found, prospects, noise)
    switched, launched = split(waiting)[0], [it for it in split(prospects)[1] if it.lever.name in found.left]
    names = {it.lever.name for it in split(prospects)[0]} - {it.lever.name for it in waiting}
    if any(found.left[it][0].gain is None for it in names & found.left.keys()):
        return found
    if not switched or math.prod(it.gain or 1.0 for it in found.parts) >= CLEAR:
        return found
    (one, *_) = switched
    plan, rounds = plan_of(found.parts), last_resort_rounds(trials)
    trials.reserve_seconds = least_reserve_for_first_answer(trials)
    if plan.settings:
        trials.reserve_seconds = RESERVE_MARGIN * verification_cost(trials, prover, plan, rounds)
    first = replace(one, settings=one.settings[:1])
    added, not_added = switched_on_top(trials, draft, plan, [first], noise, to_come=1 if launched else 0)
    trials.reserve_seconds = 0.0
    parts = (*found.parts, *added)
    left = {name: it for name, it in found.left.items() if name != one.lever.name} | not_added
    outcome, others = draft.outcome_of(one.lever.name), [Screened(it) for it in one.settings[1:]]
    has_failed = outcome is not None and isinstance(outcome.verdict, Failed)
    if others and (has_failed or one.lever.name in left):
        left[one.lever.name] = [*left.get(one.lever.name, ()), *others]
    whole = plan_of(parts)
    if added and trials.fits(verification_cost(trials, None, whole, rounds) + prover.least_cost(whole)):
        return replace(found, parts=parts, left=left)
    return replace(found, left=left | {it.lever: list(it.choices) for it in added})
