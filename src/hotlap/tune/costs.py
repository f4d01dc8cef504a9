"""What trials cost, learned from those that ran: the ground on which a budget can be promised.

All seconds come from the executor's answers and the journal, never from a clock of our own, so that a resumed search
estimates the same costs and takes the same decisions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from hotlap.records import Plan, TurnSet

FEWEST_ROUNDS = 8
USUAL_ROUNDS = 15
MOST_ROUNDS = 40

BLOCK_SECONDS = 0.3
BLOCK_STEPS = 8

_FIRST_GUESS_WARM_UP_BLOCKS = 3
_BLOCK_MARGIN = 1.25
_USUAL_ARMS = 3
_CROWDING = 1.5
"""How much slower arms start that start together on as many cores."""
_REMEMBERED_SETS = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """How the blocks of a set are cut. ``most_rounds`` is less than :data:`MOST_ROUNDS` for a script that ends soon,
    and ``most_steps`` is where it ends by itself (None: further than was looked)."""

    step_seconds: float
    outside_share: float = 0.0
    block_steps: int = BLOCK_STEPS
    block_seconds: float = BLOCK_SECONDS
    most_rounds: int = MOST_ROUNDS
    most_steps: int | None = None

    @property
    def round_seconds(self) -> float:
        """Seconds that one arm takes for one round: its block, which is planned with a margin, the step before it that
        does not count, and what the script does between steps (evaluation and the like)."""
        steps = max(self.block_steps, math.ceil(_BLOCK_MARGIN * self.block_seconds / self.step_seconds)) + 1
        return steps * self.step_seconds * (1 + self.outside_share)


class Costs:
    """Estimates in seconds. ``overhead_seconds`` is what a launch of the baseline adds to a set beside its rounds:
    start-up and warm-up, less what arms do side by side."""

    def __init__(self, startup_seconds: float, shape: Shape, *, cores: int = 1) -> None:
        self.shape = shape
        self.startup_seconds = startup_seconds
        self._side_by_side = max(1, min(cores, _USUAL_ARMS))
        self._overheads: deque[float] = deque(maxlen=_REMEMBERED_SETS)
        self._extra_startup: dict[str, float] = {}

    @property
    def overhead_seconds(self) -> float:
        """The largest of the last sets' overheads; before the first one, start-up and some blocks of warm-up."""
        if self._overheads:
            return max(self._overheads)
        startup_seconds = min(1.0, _CROWDING / self._side_by_side) * self.startup_seconds
        return startup_seconds + _FIRST_GUESS_WARM_UP_BLOCKS * self.shape.round_seconds

    def of_set(self, plans: Sequence[Plan], rounds: int) -> float:
        """One set with these arms."""
        launches = sum(self.overhead_seconds + self._extra(plan) for plan in plans)
        return launches + len(plans) * rounds * self.shape.round_seconds

    def of_launch(self, plan: Plan, steps: int) -> float:
        """One child alone for so many steps."""
        return self.startup_seconds + self._extra(plan) + self.of_steps(steps)

    def of_steps(self, steps: int) -> float:
        """So many steps of the baseline, with what the script does between them."""
        return steps * self.shape.step_seconds * (1 + self.shape.outside_share)

    def learn_set(self, turns: TurnSet, plans: Sequence[Plan], elapsed_seconds: float) -> None:
        """Correct the estimates by a set that ran through."""
        rounds = len(turns.rounds[0])
        for plan, run in zip(plans, turns.runs, strict=True):
            self._learn_startup(plan, run.startup_seconds - turns.runs[0].startup_seconds, plans[0])
        extras = sum(self._extra(plan) for plan in plans)
        rest = elapsed_seconds - extras - len(plans) * rounds * self.shape.round_seconds
        self._overheads.append(max(0.0, rest / len(plans)))

    def _learn_startup(self, plan: Plan, more_seconds: float, than: Plan) -> None:
        """Lay what a plan's start took longer than the first arm's on its newest lever, if the first arm lacks that."""
        if not plan.settings or any(it.lever == plan.settings[-1].lever for it in than.settings):
            return
        newest = plan.settings[-1].lever
        self._extra_startup[newest] = max(self._extra_startup.get(newest, 0.0), more_seconds)

    def _extra(self, plan: Plan) -> float:
        return sum(self._extra_startup.get(it.lever, 0.0) for it in plan.settings)
