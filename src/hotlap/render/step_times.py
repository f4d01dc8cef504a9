"""How long a step takes without and with the plan, as it stands next to the headline.

The account of a step with the plan is one run's, and two runs can differ by more than the ratio of paired rounds does.
So the step with the plan is what that ratio makes of the unmodified script's mean step: a reader who divides the two
gets the headline's own figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hotlap.gain import claimed
from hotlap.records import Study
from hotlap.render.account import rate_of


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a step of the unmodified script, and of as many samples with the plan if a gain is claimed of it.
    The rates are in what ``rate_name`` says. ``unit`` is what the seconds are of: a step, a call of a model or, where
    ``generate()`` is called, a token, since a plan may put several prompts into a call."""

    unit: Literal["step", "call", "token"]
    seconds: float
    rate_name: str
    rate: float
    seconds_with_plan: float | None = None
    rate_with_plan: float | None = None


def step_times(study: Study) -> StepTimes | None:
    """The step of a study; None where none was timed."""
    account, gained = study.account_before, claimed(study)
    if account is None or account.wall <= 0:
        return None
    name, rate = rate_of(account)
    unit: Literal["step", "call", "token"] = "call" if account.is_of_calls else "step"
    seconds = account.wall
    if account.samples_from == "tokens":
        unit, seconds = "token", 1 / rate
    if gained is None or study.account_after is None:
        return StepTimes(unit, seconds, name, rate)
    speedup = gained.speed.speedup.value
    return StepTimes(unit, seconds, name, rate, seconds / speedup, rate * speedup)
