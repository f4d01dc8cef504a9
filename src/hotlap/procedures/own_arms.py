"""Which levers have an arm of their own in a verification: there the plan is also launched without each of them.

It shows what a lever gains next to the others, where that is not known from one launch in which all took turns. Such an
arm takes a launch in every replicate.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.experiment.costs import FEWEST_ROUNDS
from hotlap.experiment.trials import FEWEST_ARMS, Trials
from hotlap.procedures.parts import CLEAR, Part, plan_of
from hotlap.procedures.verify import last_resort_rounds, verification_cost

_MOST_FOR_A_CLEAR_LEVER = 0.5
"""The share of the time left after a verification that a further arm may take, for a lever that is clear without."""


def arms_that_fit(trials: Trials, parts: Sequence[Part]) -> list[str] | None:
    """The levers of a plan that have an arm of their own, as far as memory and the budget allow; None if not even the
    plan can be verified.

    A lever that a first measurement clearly shows is the first to do without: it has none where starting it takes long,
    or where that takes the time of other levers. Without a budget none has one where starting takes long.
    """
    plan, few = plan_of(parts), min(trials.rounds, FEWEST_ROUNDS)
    room = max(0, trials.arms_at_once - FEWEST_ARMS)
    chosen = sorted((it for it in parts if _is_wanted(trials, it)), key=_is_clear)[:room] if len(parts) > 1 else []
    while chosen:
        without = [it.lever for it in chosen]
        cost = verification_cost(trials, None, plan, few, without=without)
        if _is_clear(chosen[-1]):
            fewer = verification_cost(trials, None, plan, few, without=without[:-1])
            cost = fewer + (cost - fewer) / _MOST_FOR_A_CLEAR_LEVER
        if trials.fits(cost):
            return without
        chosen.pop()
    least = verification_cost(trials, None, plan, last_resort_rounds(trials))
    return [] if trials.fits(least) else None


def _is_wanted(trials: Trials, part: Part) -> bool:
    """Whether its gain next to the others is unknown, and worth starting it for: where that takes long, a first
    measurement must have shown it beyond noise, and only a budget says that there is time for more."""
    if part.comparison is not None:
        return False
    has_time = trials.options.budget_seconds is not None
    return not trials.starts_slowly or (has_time and not part.joined and not _is_clear(part))


def _is_clear(part: Part) -> bool:
    return (part.gain or 0.0) >= CLEAR
