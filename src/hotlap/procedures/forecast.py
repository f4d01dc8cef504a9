"""Forecast the cost of a search before it begins: launches of the script, and minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotlap import plan as plans_of
from hotlap.experiment.confirm import first_analysis_cost
from hotlap.experiment.profiled_launch import usual_length
from hotlap.experiment.prove import Prover, affordable_steps, usual_proof_cost
from hotlap.experiment.trials import Trials
from hotlap.measure import speed
from hotlap.procedures.compose import Part, plan_of, split
from hotlap.procedures.screen import Prospect, screenings, screenings_in_one_launch
from hotlap.procedures.verify import verification_cost
from hotlap.records import Plan, Setting
from hotlap.wording import launches_in

_STAGE_LAUNCHES = 3
"""The loader alone, the model alone, and the profile."""

_PROOF_LAUNCHES = 5
"""Baseline, its repeat, candidate, with nudged weights, and in another precision."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Launches and seconds to come: of first measurements, and of the proof and verification of promising levers.

    ``purpose`` is that of the former.
    """

    screening_launches: int
    screening_seconds: float
    proof_launches: int
    proof_seconds: float
    purpose: str = "for first measurements"

    @property
    def launches(self) -> int:
        return self.screening_launches + self.proof_launches

    @property
    def seconds(self) -> float:
        return self.screening_seconds + self.proof_seconds

    @property
    def text(self) -> str:
        """What the launches are for."""
        parts = (
            (self.screening_launches, self.screening_seconds, self.purpose),
            (self.proof_launches, self.proof_seconds, "to prove what looks faster"),
        )
        said = [f"{launches_in(launches, seconds)} {why}" for launches, seconds, why in parts if launches]
        return f"{', then '.join(said)} are to come" if said else "none is to come"


def first_forecast(trials: Trials, levers: int, *, with_stages: bool = True) -> Forecast:
    """Forecast a search of so many levers from its first launch alone, before anything is known about them.

    ``with_stages``: ceilings and a profile are measured first.
    """
    launches, seconds = _screenings(trials, [plans_of.setting("any")] * levers)
    if with_stages:
        launches += _STAGE_LAUNCHES
        seconds += _STAGE_LAUNCHES * trials.costs.startup_seconds + usual_length(trials).seconds(trials)
    is_proved = bool(levers) and not trials.options.quick
    return Forecast(
        screening_launches=launches,
        screening_seconds=seconds,
        proof_launches=(_PROOF_LAUNCHES + 3 * speed.HEADLINE_REPLICATES) * is_proved,
        proof_seconds=_first_proof(trials) if is_proved else 0.0,
    )


def trials_forecast(trials: Trials, prover: Prover, candidates: Sequence[Plan]) -> Forecast:
    """Forecast trials of these candidates one by one, and the verification of what they lead to."""
    rounds = trials.rounds
    return Forecast(
        screening_launches=3 * speed.ANALYSES[0].replicates * len(candidates),
        screening_seconds=sum(first_analysis_cost(trials, plans_of.EMPTY, it, rounds) for it in candidates),
        proof_launches=3 * speed.HEADLINE_REPLICATES * bool(candidates),
        proof_seconds=verification_cost(trials, prover, candidates[-1]) if candidates else 0.0,
        purpose="to try levers one by one",
    )


def settling_forecast(trials: Trials, prover: Prover, parts: Sequence[Part]) -> Forecast:
    """Forecast the proof of a plan, and its verification next to itself without each lever whose gain is not known."""
    plan = plan_of(parts)
    names = [it.lever for it in parts if it.comparison is None] if len(parts) > 1 else []
    rounding = any(prover.proof_for(it) != "exact" for it in plan.settings)
    return Forecast(
        screening_launches=0,
        screening_seconds=0.0,
        proof_launches=_PROOF_LAUNCHES * rounding + (3 + len(names)) * speed.HEADLINE_REPLICATES,
        proof_seconds=verification_cost(trials, prover, plan, without=names),
    )


def _first_proof(trials: Trials) -> float:
    proof = usual_proof_cost(trials, plans_of.EMPTY, affordable_steps(trials))
    return proof + verification_cost(trials, None, plans_of.EMPTY)


def forecast(trials: Trials, prover: Prover, prospects: Sequence[Prospect]) -> Forecast:
    """Forecast the cost of trying these levers at once, from the launches and steps so far."""
    switched, launched = split(prospects) if trials.has_one_process else ([], list(prospects))
    launches, seconds = _screenings(trials, _settings(launched))
    in_one_launch = next(screenings_in_one_launch(trials, plans_of.EMPTY, _settings(switched)), None)
    if in_one_launch is not None:
        times = min(2, len(switched))
        launches += times
        seconds += times * in_one_launch.seconds
    settings = _settings(prospects)
    rounding = any(prover.proof_for(it) != "exact" for it in settings)
    proof = usual_proof_cost(trials, plans_of.EMPTY, affordable_steps(trials)) if rounding else 0.0
    return Forecast(
        screening_launches=launches,
        screening_seconds=seconds,
        proof_launches=_PROOF_LAUNCHES * rounding + 3 * speed.HEADLINE_REPLICATES,
        proof_seconds=proof + verification_cost(trials, None, plans_of.EMPTY),
    )


def _screenings(trials: Trials, settings: Sequence[Setting]) -> tuple[int, float]:
    """A launch for each setting, and one of the unmodified script for as many settings as run at the same time."""
    waiting = list(settings)
    launches, seconds = 0, 0.0
    while waiting:
        screening = next(screenings(trials, plans_of.EMPTY, waiting))
        launches += screening.settings + 1
        seconds += screening.seconds
        waiting = waiting[screening.settings :]
    return launches, seconds


def _settings(prospects: Sequence[Prospect]) -> tuple[Setting, ...]:
    return tuple(setting for it in prospects for setting in it.settings)
