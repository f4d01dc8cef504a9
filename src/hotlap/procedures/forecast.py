"""Forecast the cost of a procedure before it begins: launches of the script, and minutes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hotlap import plan as plans_of
from hotlap.experiment.ceilings import ceilings_launches, sweep_seconds
from hotlap.experiment.confirm import first_analysis_cost
from hotlap.experiment.observe import Observation
from hotlap.experiment.plan_ahead import Forecast, Launches
from hotlap.experiment.profiled_launch import usual_length
from hotlap.experiment.profiled_plan import seconds_to_profile
from hotlap.experiment.prove import Prover, affordable_steps, usual_proof_cost
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever
from hotlap.measure import speed
from hotlap.procedures.budget import affordable_way, allows_a_proof, least_proof_seconds
from hotlap.procedures.compose import combined_at_once, split
from hotlap.procedures.own_arms import arms_that_fit
from hotlap.procedures.parts import Part, plan_of
from hotlap.procedures.prospects import Prospect
from hotlap.procedures.screenings import (
    Screening,
    can_switch,
    most_seconds,
    screenings,
    screenings_in_one_launch,
    screenings_of_plans,
)
from hotlap.procedures.verify import verification_cost
from hotlap.records import Machine, Plan, Setting

_PROOF_LAUNCHES = 5
"""Baseline, its repeat, candidate, with nudged weights, and in another precision."""

_USUAL_PROOF_LAUNCHES = 3
"""Without the repeat and the nudged weights, which a search needs only for results that differ by more than 0.1 %."""

_FIRST, _PROOF = "for first measurements", "to prove what looks faster"


def first_forecast(trials: Trials, levers: int, stages: Sequence[Launches] = (), *, proves: bool = True) -> Forecast:
    """Forecast a search of so many levers from its first launch alone, before anything is known about them.

    ``stages``: what is measured before the levers. ``proves``: there is time for a proof.
    """
    launches, seconds = _screenings(trials, [plans_of.setting("any")] * levers)
    launches += sum(it.count for it in stages)
    seconds += sum(it.seconds or 0.0 for it in stages)
    is_proved = bool(levers) and proves and not trials.options.quick
    return Forecast.of(
        Launches(launches, seconds, _FIRST, spare=True),
        Launches(
            (_USUAL_PROOF_LAUNCHES + 3 * speed.HEADLINE_REPLICATES) * is_proved,
            _first_proof(trials) if is_proved else 0.0,
            _PROOF,
        ),
    )


def search_forecast(trials: Trials, levers: int, stages: Sequence[Launches]) -> Forecast:
    """The same of a search that profiles its plan, without either if the budget allows no proof."""
    proves = bool(levers) and allows_a_proof(trials)
    whole = first_forecast(trials, levers, stages, proves=proves)
    if not proves:
        return whole
    return _with_a_proof_that_fits(trials, whole.then(plan_profile_launch(trials, plans_of.EMPTY)))


def stages(trials: Trials, observation: Observation, machine: Machine) -> tuple[Launches, ...]:
    """What finds bounds and causes: the model alone, and the profiled launch."""
    sweep = sweep_seconds(trials, observation, machine)
    return (ceilings_launches(trials, observation), profile_launch(trials, sweep))


def profile_launch(trials: Trials, sweep: float = 0.0) -> Launches:
    """The profiled launch; timing the loader alone adds ``sweep`` seconds."""
    return Launches(1, usual_length(trials).seconds(trials) + sweep, "to find causes")


def plan_profile_launch(trials: Trials, plan: Plan) -> Launches:
    """The profiled launch of the plan, for which a short budget has no time."""
    return Launches(1, seconds_to_profile(trials, plan), "to profile the plan", spare=True)


def comparison_forecast(trials: Trials, plans: Sequence[Plan], replicates: int, *proofs: Launches) -> Forecast:
    """Forecast so many replicates of these plans, and the proofs that follow."""
    seconds = trials.replicates_seconds(plans, replicates, trials.rounds)
    return Forecast.of(Launches(replicates * len(plans), seconds, "to compare the speed"), *proofs)


def proof_launches(launches: int, seconds: float) -> Launches:
    """The launches that compare results."""
    return Launches(launches, seconds, "to compare the results")


def proof_of_plans(prover: Prover, plans: Sequence[Plan]) -> Launches:
    """The proofs of these plans, one after the other; those of exact levers need no launches."""
    rounding = [it for it in plans if any(prover.proof_for(one) != "exact" for one in it.settings)]
    return proof_launches(_PROOF_LAUNCHES * len(rounding), sum(map(prover.cost, rounding)))


def trials_forecast(trials: Trials, prover: Prover, plan: Plan, candidates: Sequence[Plan]) -> Forecast:
    """Forecast trials of these candidates one by one on top of a plan, and the verification of what they lead to.

    Those that the budget cannot prove are left out, and so is the trial of one that is verified straight away.
    """
    rounds = trials.rounds
    ways = [(it, way) for it in candidates if (way := affordable_way(trials, prover, plan, it)) is not None]
    possible, tried = [it for it, _ in ways], [it for it, way in ways if not way.straight]
    one_by_one = Launches(
        3 * speed.ANALYSES[0].replicates * len(tried),
        sum(first_analysis_cost(trials, plans_of.EMPTY, it, rounds) for it in tried),
        "to try levers one by one",
        spare=True,
    )
    proof = Launches(
        3 * speed.HEADLINE_REPLICATES * bool(possible),
        verification_cost(trials, prover, possible[-1]) if possible else 0.0,
        _PROOF,
    )
    return _with_a_proof_that_fits(trials, Forecast.of(one_by_one, proof))


def settling_forecast(trials: Trials, prover: Prover, parts: Sequence[Part]) -> Forecast:
    """Forecast the proof of a plan, and its verification next to itself without each lever whose gain is not known;
    nothing if there is no time for it."""
    plan = plan_of(parts)
    names = arms_that_fit(trials, parts)
    if names is None:
        return Forecast(())
    rounding = any(prover.proof_for(it) != "exact" for it in plan.settings)
    launches = _USUAL_PROOF_LAUNCHES * rounding + (3 + len(names)) * speed.HEADLINE_REPLICATES
    proof = Launches(launches, verification_cost(trials, prover, plan, without=names), _PROOF)
    return _with_a_proof_that_fits(trials, Forecast.of(proof))


def _first_proof(trials: Trials) -> float:
    proof = usual_proof_cost(trials, plans_of.EMPTY, affordable_steps(trials))
    return proof + verification_cost(trials, None, plans_of.EMPTY)


def as_allowed(trials: Trials, prospects: Sequence[Prospect], expected: Forecast) -> Forecast:
    """What is expected of trying these levers at once: with the shortest proof, if the budget is too short for a usual
    one, and first measurements alone, if it allows none."""
    if not allows_a_proof(trials, [it.settings[0] for it in split(prospects)[0]]):
        return _looks_forecast(trials, prospects)
    return _with_a_proof_that_fits(trials, expected)


def _with_a_proof_that_fits(trials: Trials, expected: Forecast) -> Forecast:
    """The same with the shortest proof, where the budget is too short for the usual one."""
    if (expected.seconds or 0.0) <= trials.left_seconds + trials.reserve_seconds:
        return expected
    least = least_proof_seconds(trials)
    return Forecast(
        tuple(
            replace(it, seconds=min(it.seconds or 0.0, least)) if it.purpose == _PROOF else it for it in expected.parts
        )
    )


def _looks_forecast(trials: Trials, prospects: Sequence[Prospect]) -> Forecast:
    """Forecast first measurements of these levers, as many as there is time for."""
    switched, launched = split(prospects)
    waiting, count, seconds = list(_settings(launched)), 0, 0.0
    screening = _that_fits(trials, _screenings_of_switched(trials, switched), 0.0) if switched else None
    if screening is not None:
        count, seconds = screening.launches, screening.seconds
    while waiting:
        screening = _that_fits(trials, screenings(trials, plans_of.EMPTY, waiting), seconds)
        if screening is None:
            break
        count += screening.launches
        seconds += screening.seconds
        waiting = waiting[screening.settings :]
    return Forecast.of(Launches(count, seconds, _FIRST))


def forecast_one_by_one(trials: Trials, plan: Plan, levers: Mapping[Setting, Lever]) -> Forecast:
    """Forecast a first measurement of each of these settings by itself on top of a plan, of as many as there is time
    for."""
    count, seconds = 0, 0.0
    for setting, lever in levers.items():
        switches = can_switch(lever, setting) and trials.options.goal.is_of_speed
        possible = (screenings_in_one_launch if switches else screenings)(trials, plan, [setting])
        screening = _that_fits(trials, possible, seconds)
        if screening is not None:
            count += screening.launches
            seconds += screening.seconds
    return Forecast.of(Launches(count, seconds, "to look at other levers"))


def _that_fits(trials: Trials, possible: Iterable[Screening], seconds: float) -> Screening | None:
    """The longest of these for which so many seconds from now leave time; nothing is reserved."""
    left = trials.left_seconds + trials.reserve_seconds - seconds
    return next((it for it in possible if most_seconds(trials, it) <= left), None)


def forecast(trials: Trials, prover: Prover, prospects: Sequence[Prospect]) -> Forecast:
    """Forecast the cost of trying these levers at once, from the launches and steps so far.

    The first part is that of first measurements.
    """
    switched, launched = split(prospects)
    launches, seconds = _screenings(trials, _settings(launched))
    in_one_launch = next(_screenings_of_switched(trials, switched), None)
    if in_one_launch is not None:
        times = 1 if combined_at_once(trials, switched) else min(2, len(switched))
        launches += times
        seconds += times * in_one_launch.seconds
    settings = _settings(prospects)
    rounding = any(prover.proof_for(it) != "exact" for it in settings)
    proof = usual_proof_cost(trials, plans_of.EMPTY, affordable_steps(trials)) if rounding else 0.0
    return Forecast(
        (
            Launches(launches, seconds, _FIRST, spare=True),
            *(_on_top(trials, launched) if switched else ()),
            Launches(
                _USUAL_PROOF_LAUNCHES * rounding + 3 * speed.HEADLINE_REPLICATES,
                proof + verification_cost(trials, None, plans_of.EMPTY),
                _PROOF,
            ),
        )
    )


def _on_top(trials: Trials, launched: Sequence[Prospect]) -> tuple[Launches, ...]:
    """The replicate of levers that need a process of their own, on top of those that a process can switch."""
    if not launched or trials.starts_slowly:
        return ()
    screening = next(screenings(trials, plans_of.EMPTY, [it.settings[0] for it in launched]))
    return (Launches(screening.launches, screening.seconds, "to see what pays on top", spare=True),)


def _screenings_of_switched(trials: Trials, switched: Sequence[Prospect]) -> Iterator[Screening]:
    """Each by itself, or all combinations of a few."""
    settings = _settings(switched)
    if not combined_at_once(trials, switched):
        return screenings_in_one_launch(trials, plans_of.EMPTY, settings)
    combinations = 2 ** len(settings)  # one of them is no lever, which runs twice
    return screenings_of_plans(trials, [plans_of.EMPTY] * (combinations + 1))


def _screenings(trials: Trials, settings: Sequence[Setting]) -> tuple[int, float]:
    """A launch for each setting, and one of the unmodified script for as many settings as run at the same time."""
    waiting = list(settings)
    launches, seconds = 0, 0.0
    while waiting:
        screening = next(screenings(trials, plans_of.EMPTY, waiting))
        launches += screening.launches
        seconds += screening.seconds
        waiting = waiting[screening.settings :]
    return launches, seconds


def _settings(prospects: Sequence[Prospect]) -> tuple[Setting, ...]:
    return tuple(setting for it in prospects for setting in it.settings)
