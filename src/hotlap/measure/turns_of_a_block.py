"""In how many turns a block is best taken, by how the times of a script's own steps vary.

Arms that take turns cancel what changes more slowly than they do (randomised blocks: Fisher, *The Design of
Experiments*, 1935). On a machine with busy neighbours the time of a step changes within a second or two: two long
blocks, one after the other, then meet different machines, two short ones the same. On a quiet machine short turns only
cost time, since the step that leads in a turn is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean

_POSSIBLE = (1, 2, 4)
_FEWEST_STEPS = 2
_SHORTEST_SECONDS = 0.15
_LEAD_IN = 1
_FEWEST_BLOCKS = 5
"""Fewer blocks do not show whether long ones differ by more than short ones."""
_LAGS = (1, 2)
"""Of two blocks that are compared with each other: with three arms at most one of another arm lies between them."""
_NOTABLE = 0.01
"""By less of their time two blocks may differ without any need of shorter turns."""
_WORTH = 1.3
"""By so many times the variance in the same time must shrink: white noise shows as much in one study of twenty."""


def turns_of_a_block(step_seconds: Sequence[float], block_steps: int) -> int:
    """The number of turns in which the difference between two blocks of so many steps varies least, for the time that
    it takes: 1, 2 or 4.

    ``step_seconds`` are consecutive steps of the unmodified script, without its warm-up. The answer is 1 where they are
    too few to tell, and where blocks hardly differ; no turn is shorter than two steps or 0.15 seconds.
    """
    if len(step_seconds) < _FEWEST_BLOCKS * (block_steps + _LEAD_IN):
        return 1
    usual = fmean(step_seconds)
    lengths = {turns: math.ceil(block_steps / turns) for turns in _POSSIBLE}
    costs = {
        turns: _variance_per_time(step_seconds, steps)
        for turns, steps in lengths.items()
        if turns == 1 or (steps >= _FEWEST_STEPS and steps * usual >= _SHORTEST_SECONDS)
    }
    best = min(costs, key=costs.__getitem__)
    is_quiet = costs[1] < (block_steps + _LEAD_IN) * (_NOTABLE * usual) ** 2
    return 1 if is_quiet or costs[1] < _WORTH * costs[best] else best


def _variance_per_time(step_seconds: Sequence[float], turn_steps: int) -> float:
    """The mean square of the differences between turns of so many steps, times the steps that one takes."""
    sums = [0.0, *accumulate(step_seconds)]
    turns = [(sums[end] - sums[end - turn_steps]) / turn_steps for end in range(turn_steps, len(sums))]
    period = turn_steps + _LEAD_IN
    pairs = (zip(turns, turns[lag * period :], strict=False) for lag in _LAGS)
    squares = [(later - earlier) ** 2 for one_lag in pairs for earlier, later in one_lag]
    return fmean(squares) * period
