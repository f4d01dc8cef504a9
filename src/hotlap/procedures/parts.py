"""The levers that a plan is put together from, and which gains of one replicate count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotlap import plan as plans_of
from hotlap.experiment.trials import Trials
from hotlap.procedures.screen import WORTH_SLOW_STARTS, Screened
from hotlap.records import Comparison, Move, Plan, Setting

CLEAR = 1.15
"""The gain of a single replicate that noise cannot explain."""


@dataclass(frozen=True, slots=True)
class Part:
    """A lever of the plan: its settings, the chosen one first, and that one's gain next to the others within one launch
    (None if it needs a process of its own). It has ``joined`` the plan of others if no first measurement shows a gain
    beyond noise."""

    choices: tuple[Screened, ...]
    comparison: Comparison | None = None
    joined: bool = False

    @property
    def setting(self) -> Setting:
        """The chosen setting."""
        return self.choices[0].setting

    @property
    def lever(self) -> str:
        return self.setting.lever

    @property
    def gain(self) -> float | None:
        """Its gain in a first measurement, next to the levers chosen before it."""
        return self.choices[0].gain


def plan_of(parts: Sequence[Part]) -> Plan:
    """The plan of these levers."""
    return plans_of.with_move(plans_of.EMPTY, Move(settings=tuple(it.setting for it in parts)))


def beyond_noise(trials: Trials, noise: float) -> float:
    """The gain in one replicate that is more than noise, and worth the launches of a script that starts slowly."""
    far = (1 + trials.options.delta) * (1 + noise)
    return max(far, WORTH_SLOW_STARTS) if trials.starts_slowly else far


def may_gain(first: Screened, freed: float, delta: float) -> bool:
    """Whether a lever may be worth having on top of one that gains ``freed``, in a step that much shorter."""
    return first.gain is None or (first.gain - 1) * freed >= delta
