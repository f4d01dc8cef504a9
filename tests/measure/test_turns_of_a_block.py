"""In how many turns a block is taken, by the steps of the unmodified script."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.turns_of_a_block import turns_of_a_block

STEP_SECONDS = 0.1


def white(seed: int, noise: float) -> Iterator[float]:
    draw = random.Random(seed)
    while True:
        yield STEP_SECONDS * math.exp(draw.gauss(0, noise))


def busy(seed: int, steps: float) -> Iterator[float]:
    """Steps next to a neighbour that comes and goes, on average after so many of them."""
    draw, slow = random.Random(seed), False
    for one in white(seed, 0.02):
        slow = not slow if draw.random() < 1 / steps else slow
        yield one * (1.4 if slow else 1.0)


def test_neighbours_that_come_and_go_make_turns_short() -> None:
    found = [turns_of_a_block(list(islice(busy(seed, steps=15), 90)), 8) for seed in range(40)]
    assert sum(it > 1 for it in found) >= 34


def test_noise_without_memory_leaves_long_turns() -> None:
    found = [turns_of_a_block(list(islice(white(seed, 0.03), 90)), 8) for seed in range(100)]
    assert sum(it > 1 for it in found) <= 10


def test_steps_that_are_alike_leave_long_turns() -> None:
    assert turns_of_a_block([STEP_SECONDS] * 90, 8) == 1


def test_a_stall_now_and_then_leaves_long_turns() -> None:
    """Every tenth step waits for data; long blocks have about as many of these steps each."""
    assert turns_of_a_block([STEP_SECONDS * (8 if number % 10 == 9 else 1) for number in range(200)], 8) == 1


@pytest.mark.parametrize("steps", [0, 1, 44])
def test_too_few_steps_tell_nothing(steps: int) -> None:
    assert turns_of_a_block(list(islice(busy(1, steps=15), steps)), 8) == 1


@given(
    st.lists(st.floats(1e-4, 10), max_size=300),
    st.integers(1, 40),
)
def test_no_turn_is_shorter_than_two_steps_or_too_short_in_seconds(seconds: list[float], block_steps: int) -> None:
    turns = turns_of_a_block(seconds, block_steps)
    assert turns in (1, 2, 4)
    if turns > 1:
        steps = math.ceil(block_steps / turns)
        assert steps >= 2
        assert steps * sum(seconds) / len(seconds) >= 0.15 * 0.999
