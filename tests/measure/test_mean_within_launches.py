"""The mean of speedups that were compared within a launch each."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.speed import compare_within_launch, mean_within_launches
from hotlap.records import SpeedComparison

TRUE = 1.1


def compared(seed: int, rounds: int = 8, noise: float = 0.05) -> SpeedComparison:
    """A comparison of arms that differ by the true speedup, with noise in each round."""
    numbers = random.Random(seed)

    def times(level: float) -> list[float]:
        return [level * math.exp(numbers.gauss(0.0, noise)) for _ in range(rounds)]

    return compare_within_launch(times(TRUE), times(TRUE), times(1.0))


@given(seeds=st.lists(st.integers(0, 10_000), min_size=2, max_size=4, unique=True), rounds=st.integers(2, 20))
def test_it_lies_between_them_and_keeps_their_order(seeds: list[int], rounds: int) -> None:
    comparisons = [compared(it, rounds) for it in seeds]
    mean, values = mean_within_launches(comparisons), [it.speedup.value for it in comparisons]
    assert min(values) <= mean.value * (1 + 1e-9) and mean.value <= max(values) * (1 + 1e-9)
    assert mean.low <= mean.value <= mean.high
    assert mean == mean_within_launches(comparisons[:1] + comparisons[:0:-1])


def test_one_comparison_is_its_own_mean() -> None:
    found = compared(1)
    mean = mean_within_launches([found])
    assert math.isclose(mean.low, found.speedup.low) and math.isclose(mean.high, found.speedup.high)


def test_its_interval_has_the_truth_as_often_as_it_says() -> None:
    """And is narrower than that of one comparison."""
    pairs = [(compared(it), compared(it + 100_000, rounds=4)) for it in range(400)]
    means = [mean_within_launches(it) for it in pairs]
    assert 0.92 < sum(it.low <= TRUE <= it.high for it in means) / len(means) < 0.985
    widths = [math.log(it.high / it.low) for it in means]
    alone = [math.log(other.speedup.high / other.speedup.low) for _, other in pairs]
    assert sum(widths) < 0.75 * sum(alone)


def test_arms_that_differ_by_nothing_have_no_interval() -> None:
    same = compare_within_launch([1.0] * 4, [1.0] * 4, [1.0] * 4)
    assert mean_within_launches([same, same]).low == mean_within_launches([same, same]).high == 1.0
