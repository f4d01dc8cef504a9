"""Forecast the cost of a search before it begins: launches of the script, and minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotlap import plan as plans_of
from hotlap.experiment.prove import Prover, affordable_steps, usual_proof_cost
from hotlap.experiment.trials import Trials
from hotlap.measure import speed
from hotlap.procedures.compose import split
from hotlap.procedures.screen import Prospect, screenings, screenings_in_one_launch
from hotlap.procedures.verify import verification_cost
from hotlap.records import Setting

_PROOF_LAUNCHES = 5
"""Baseline, its repeat, candidate, with nudged weights, and in another precision."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Launches and seconds of the first measurements, and of the proof and verification of promising levers."""

    screening_launches: int
    screening_seconds: float
    proof_launches: int
    proof_seconds: float

    @property
    def text(self) -> str:
        """The forecast as one sentence."""
        first = f"About {self.screening_launches} launches in {_minutes(self.screening_seconds)} for first measurements"
        then = f"{self.proof_launches} in {_minutes(self.proof_seconds)} to prove what looks faster"
        return f"{first}; then about {then}"


def forecast(trials: Trials, prover: Prover, prospects: Sequence[Prospect]) -> Forecast:
    """Forecast the cost of trying these levers at once, from the launches and steps so far."""
    switched, launched = split(prospects) if trials.has_one_process else ([], list(prospects))
    launches, seconds = _screenings(trials, launched)
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


def _screenings(trials: Trials, launched: Sequence[Prospect]) -> tuple[int, float]:
    """A launch for each setting, and one of the unmodified script for as many settings as run at the same time."""
    waiting = list(_settings(launched))
    launches, seconds = 0, 0.0
    while waiting:
        screening = next(screenings(trials, plans_of.EMPTY, waiting))
        launches += screening.settings + 1
        seconds += screening.seconds
        waiting = waiting[screening.settings :]
    return launches, seconds


def _settings(prospects: Sequence[Prospect]) -> tuple[Setting, ...]:
    return tuple(setting for it in prospects for setting in it.settings)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
