"""A model of how a machine disturbs timings, from the launch down to the block.

Every scenario is a hierarchy: each launch of the same code has a level of its own (memory placement), each round has a
drift that its arms share, each block has noise of its own, some blocks are hit by a spike, and another process may stay
for many blocks in a row.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal, TypeAlias

Arm: TypeAlias = list[list[float]]

_SPIKE_MEAN = 0.3
_HEAVY_DEGREES = 3
_TWO_STATES = (0.7, 0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of machine; all sizes are standard deviations of the logarithm of a time.

    ``launch`` separates launches of the same code, with the distribution ``shape``: ``heavy`` is Student's t with three
    degrees of freedom, ``two-state`` a level that is either fast or slow. ``block`` is each block's own, ``drift`` the
    step of a random walk that all arms of a round share, of which each block has the share ``unshared`` to itself;
    ``spikes`` is the share of blocks that another process prolongs (30 % on average). ``neighbour`` is how much longer
    blocks take while another process is there: it comes and goes, stays for ``stays`` blocks on average, and is there
    half of the time, so that blocks are autocorrelated. ``blocks_heavy``: block noise is Student's t as well.
    """

    name: str
    launch: float
    block: float
    shape: Literal["normal", "heavy", "two-state"] = "normal"
    drift: float = 0.03
    unshared: float = 0.0
    spikes: float = 0.02
    neighbour: float = 0.0
    stays: float = 12.0
    blocks_heavy: bool = False


SCENARIOS = (
    Scenario(name="dedicated accelerator", launch=0.003, block=0.003, drift=0.002, spikes=0.0),
    Scenario(name="quiet", launch=0.01, block=0.01, drift=0.01, spikes=0.005),
    Scenario(name="launches 2 %", launch=0.02, block=0.02),
    Scenario(name="launches 4 %", launch=0.04, block=0.03),
    Scenario(name="launches 6 %", launch=0.06, block=0.05, spikes=0.05),
    Scenario(name="launches in two states", launch=0.04, block=0.02, shape="two-state"),
    Scenario(name="heavy-tailed launches", launch=0.03, block=0.03, shape="heavy"),
    Scenario(name="heavy-tailed launches and blocks", launch=0.03, block=0.03, shape="heavy", blocks_heavy=True),
    Scenario(name="drift that arms share badly", launch=0.03, block=0.03, drift=0.10, unshared=0.10),
    Scenario(name="spikes in every fifth block", launch=0.02, block=0.02, spikes=0.20),
    Scenario(name="a neighbour that comes and stays", launch=0.02, block=0.02, neighbour=0.25),
)


def draw_replicate(
    source: random.Random,
    scenario: Scenario,
    *,
    rounds: int,
    speedups: tuple[float, ...],
    one_launch: bool = False,
) -> list[list[float]]:
    """Seconds per sample, one row per arm; each arm is ``speedups[i]`` times as fast as the code under no noise.

    The blocks of a round run one after another, in random order. With ``one_launch`` one process runs all arms.
    """
    shared = _launch(source, scenario) if one_launch else None
    levels = [(_launch(source, scenario) if shared is None else shared) - math.log(it) for it in speedups]
    rows: list[list[float]] = [[] for _ in speedups]
    order = list(range(len(speedups)))
    drift, is_there = 0.0, source.random() < 0.5 if scenario.neighbour else False
    for _ in range(rounds):
        drift += source.gauss(0.0, scenario.drift)
        if scenario.neighbour:
            source.shuffle(order)
        for arm in order:
            if scenario.neighbour and source.random() < 1 / scenario.stays:
                is_there = not is_there
            prolonged = scenario.neighbour if is_there else 0.0
            rows[arm].append(math.exp(levels[arm] + drift + prolonged + _block(source, scenario)))
    return rows


def draw_arms(
    source: random.Random, scenario: Scenario, *, replicates: int, rounds: int, speedups: tuple[float, ...]
) -> tuple[Arm, ...]:
    """The same for several replicates: one :data:`Arm` per speedup."""
    drawn = [draw_replicate(source, scenario, rounds=rounds, speedups=speedups) for _ in range(replicates)]
    return tuple([rows[arm] for rows in drawn] for arm in range(len(speedups)))


def _launch(source: random.Random, scenario: Scenario) -> float:
    if scenario.shape == "normal":
        return source.gauss(0.0, scenario.launch)
    if scenario.shape == "heavy":
        return _heavy(source, scenario.launch)
    fast, slow = _TWO_STATES
    step = scenario.launch / math.sqrt(fast * slow)
    return step if source.random() < slow else 0.0


def _heavy(source: random.Random, size: float) -> float:
    """Student's t with that standard deviation."""
    chi_square = source.gammavariate(_HEAVY_DEGREES / 2, 2.0)
    scale = size / math.sqrt(_HEAVY_DEGREES / (_HEAVY_DEGREES - 2))
    return scale * source.gauss(0.0, 1.0) / math.sqrt(chi_square / _HEAVY_DEGREES)


def _block(source: random.Random, scenario: Scenario) -> float:
    size = math.hypot(scenario.block, scenario.unshared)
    own = _heavy(source, size) if scenario.blocks_heavy else source.gauss(0.0, size)
    spike = source.expovariate(1 / _SPIKE_MEAN) if source.random() < scenario.spikes else 0.0
    return own + math.log1p(spike)
