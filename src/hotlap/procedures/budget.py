"""What a budget allows: whether a lever can be proved with the rest, and which budget would suffice.

Both follow from the same sums, so that an advised budget is sufficient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hotlap import plan as plans_of
from hotlap.experiment.confirm import first_analysis_cost
from hotlap.experiment.costs import FEWEST_ROUNDS
from hotlap.experiment.observe import FEWEST_STEPS, observed_seconds
from hotlap.experiment.profiled_launch import SEARCH_SHARE, usual_length
from hotlap.experiment.prove import Prover, steps_for, usual_proof_cost
from hotlap.experiment.trials import Trials
from hotlap.procedures.screenings import screenings, screenings_in_one_launch
from hotlap.procedures.verify import last_resort_rounds, verification_cost
from hotlap.records import Plan, Run, Setting

RESERVE_MARGIN = 1.15
ADVICE_MARGIN = 1.3
"""A margin, since costs are estimates, also in the study that follows the advice."""

_AMPLE = 2.0
"""So many times as much as a search is forecast to take leaves time for levers that start slowly."""

_SCREENED = 3
_SHARE_FOR_A_SCREENING = 0.5
_ROUNDED_TO_SECONDS = 10
_LONG_SECONDS, _LONG_ROUNDED_TO_SECONDS = 600, 60


@dataclass(frozen=True, slots=True)
class Way:
    """How a lever can be proved.

    By a trial and, together with all others, a verification; or ``straight``: by the verification alone, if the plan is
    empty and the budget allows no more.
    """

    rounds: int
    straight: bool = False


def affordable_way(trials: Trials, prover: Prover, plan: Plan, candidate: Plan) -> Way | None:
    """The best way that the remaining budget allows; None if it allows none."""
    left = _left(trials)
    few = min(trials.rounds, FEWEST_ROUNDS)
    proof = prover.cost(candidate)
    for rounds in dict.fromkeys((trials.rounds, few)):
        trial = first_analysis_cost(trials, plan, candidate, rounds) + proof
        if trial + RESERVE_MARGIN * verification_cost(trials, None, candidate, rounds) <= left:
            return Way(rounds)
    straight = verification_cost(trials, None, candidate, last_resort_rounds(trials)) + proof
    return Way(few, straight=True) if not plan.settings and straight <= left else None


def reserve_for_first_answer(trials: Trials) -> float:
    """Seconds to reserve for the first proof while bounds and bottlenecks are measured.

    If the budget allows no proof, or none is wanted, they are for screening some levers.
    """
    return _reserve_for_one_proof(trials) or _for_a_look(trials)


def is_too_short_for_a_usual_proof(trials: Trials) -> bool:
    """Whether what is left of the budget allows no proof with the usual number of rounds, and a margin."""
    return not trials.options.quick and _reserve_for_one_proof(trials) == 0.0


def _for_a_look(trials: Trials) -> float:
    """Seconds for screening some levers, each in a launch of its own."""
    setting = plans_of.setting("any")
    possible = (it.seconds for it in screenings(trials, plans_of.EMPTY, [setting] * _SCREENED))
    return next((it for it in possible if it <= _SHARE_FOR_A_SCREENING * _left(trials)), 0.0)


def least_reserve_for_first_answer(trials: Trials, switched: Sequence[Setting] = ()) -> float:
    """The seconds of a first proof with the fewest rounds, without a margin: where more leaves no time to see which
    levers promise something, an arbitrary one would be proved. Where even these leave no time to see some of the
    ``switched`` levers, no proof is reserved for, and the time is for screening."""
    if trials.options.quick:
        return reserve_for_first_answer(trials)
    return least_proof_seconds(trials) if allows_a_proof(trials, switched) else _for_a_look(trials)


def allows_a_proof(trials: Trials, switched: Sequence[Setting] = ()) -> bool:
    """Whether what is left of the budget allows the shortest proof, and to see some of the ``switched`` levers before
    it."""
    if trials.options.quick:
        return False
    return least_proof_seconds(trials) + shortest_look_seconds(trials, switched[:_SCREENED]) <= _left(trials)


def shortest_look_seconds(trials: Trials, switched: Sequence[Setting]) -> float:
    """The seconds of the shortest launch in which a process switches between all of these; 0 if there is none."""
    return min((it.seconds for it in screenings_in_one_launch(trials, plans_of.EMPTY, switched)), default=0.0)


def least_proof_seconds(trials: Trials) -> float:
    """The seconds of a first proof with the fewest rounds and the launches that it needs where results are the same."""
    budget, rounds = trials.options.budget_seconds, last_resort_rounds(trials)
    return _least(trials, plans_of.EMPTY, budget, rounds, few_runs=True)


def reserve_while_bounding(trials: Trials) -> float:
    """The same while ceilings are measured: with a budget too small for a proof, the profiled launch comes first."""
    proof = _reserve_for_one_proof(trials)
    if proof:
        return proof
    return min(_left(trials), reserve_for_first_answer(trials) + usual_length(trials).seconds(trials))


def share_for_causes(trials: Trials, baseline: Run, stages_seconds: float) -> float:
    """The share of the budget for the profiled launch; all but the screening, if it allows no proof."""
    needed = budget_for_a_proof(trials, baseline, stages_seconds, plans_of.EMPTY)
    short = trials.options.quick or (trials.options.budget_seconds or math.inf) < needed
    return 1.0 if short else SEARCH_SHARE


def _reserve_for_one_proof(trials: Trials) -> float:
    """Its seconds; 0 if it does not fit, or is not wanted."""
    if trials.options.quick:
        return 0.0
    least = RESERVE_MARGIN * _least(trials, plans_of.EMPTY, trials.options.budget_seconds)
    return least if least <= _left(trials) else 0.0


def is_ample(trials: Trials, seconds: float) -> bool:
    """Whether what is left of the budget is far more than a search that is forecast to take so many seconds."""
    return _AMPLE * seconds <= _left(trials)


def reserve_for(trials: Trials, prover: Prover, plan: Plan) -> float:
    """Seconds to reserve during the screening: for a trial and the verification or, if less is left, for one proof.

    For a plan that is kept already, always those of its verification.
    """
    verification = RESERVE_MARGIN * verification_cost(trials, prover, plan)
    usual = first_analysis_cost(trials, plan, plan, trials.rounds) + verification
    if usual <= _left(trials):
        return usual
    return verification if plan.settings else _reserve_for_one_proof(trials)


def budget_for_a_proof(trials: Trials, baseline: Run, stages_seconds: float, candidate: Plan) -> float:
    """The budget with which a study of this script, started again, could prove the candidate.

    ``stages_seconds`` is the time before, without the profiled launch, which takes a share of any budget.
    """
    shape = trials.costs.shape
    watched = sum(baseline.steps.wall_seconds)
    longer = max(0.0, max(observed_seconds(None), FEWEST_STEPS * shape.step_seconds) - watched)
    needed = stages_seconds + longer
    for _ in range(10):  # a larger budget allows a longer proof, which takes less than the budget adds
        least = ADVICE_MARGIN * _least(trials, candidate, needed)
        needed = (stages_seconds + longer + least) / (1 - SEARCH_SHARE)
    return rounded_up(needed)


def budget_for_the_rest(
    trials: Trials, prover: Prover, plan: Plan, candidates: Iterable[Plan], *, with_trials: bool = True
) -> float:
    """The budget with which this study would also have tried these; ``with_trials``: each by itself, before a
    verification, which is all that levers need that are tried at once."""
    tried = list(candidates)
    proofs = sum(map(prover.cost, tried))
    trial = sum(first_analysis_cost(trials, plan, it, trials.rounds) for it in tried) if with_trials else 0.0
    return rounded_up(trials.spent_seconds + ADVICE_MARGIN * (trial + proofs + verification_cost(trials, prover, plan)))


def rounded_up(seconds: float) -> float:
    """Round up to a usual budget: to whole minutes if it is long."""
    to = _ROUNDED_TO_SECONDS if seconds <= _LONG_SECONDS else _LONG_ROUNDED_TO_SECONDS
    return float(to * math.ceil(seconds / to))


def _least(
    trials: Trials,
    candidate: Plan,
    budget_seconds: float | None,
    fewest_rounds: int = FEWEST_ROUNDS,
    *,
    few_runs: bool = False,
) -> float:
    """The shortest proof: the fresh replicates of a verification, and the parity runs; ``few_runs``: only those that
    are needed where results are the same."""
    proof = usual_proof_cost(trials, candidate, steps_for(trials, budget_seconds), least=few_runs)
    rounds = min(trials.options.rounds or fewest_rounds, trials.costs.shape.most_rounds)
    return verification_cost(trials, None, candidate, rounds) + proof


def _left(trials: Trials) -> float:
    budget = trials.options.budget_seconds
    return math.inf if budget is None else budget - trials.spent_seconds
