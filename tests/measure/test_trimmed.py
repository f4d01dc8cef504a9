"""The mean without extreme rounds: unmoved by one of them, and with an interval that keeps its promise."""

from __future__ import annotations

import math
import random
from statistics import fmean, median, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from hotlap.measure import student, trimmed
from hotlap.measure.speed import compare_within_launch

values = some.lists(some.floats(-1, 1), min_size=2, max_size=40)


def plain(found: list[float]) -> tuple[float, float, int]:
    return fmean(found), stdev(found) / math.sqrt(len(found)), len(found) - 1


@given(some.lists(some.floats(-1, 1), min_size=2, max_size=6))
def test_few_values_all_count(found: list[float]) -> None:
    assert trimmed.mean(found) == pytest.approx(plain(found), abs=1e-12)


@given(some.lists(some.floats(-1, 1), min_size=7, max_size=40, unique=True))
def test_without_an_extreme_one_all_count(found: list[float]) -> None:
    spread = stats.median_abs_deviation(found, scale="normal")
    if max(abs(it - median(found)) for it in found) < 5.99 * spread:
        assert trimmed.mean(found) == pytest.approx(plain(found), abs=1e-12)


@given(some.lists(some.floats(-1, 1), min_size=6, max_size=39), some.floats(1e2, 1e6), some.booleans())
def test_an_extreme_one_does_not_count_however_far_it_is(found: list[float], far: float, up: bool) -> None:
    moved = [*found, far if up else -far]
    assert trimmed.mean(moved) == trimmed.mean([*found, 2 * far if up else -2 * far])
    assert trimmed.mean(moved).value == pytest.approx(stats.trim_mean(moved, 0.15), abs=1e-12)
    assert trimmed.mean(moved).degrees < len(found)


@given(values, some.permutations(range(40)))
def test_their_order_does_not_matter(found: list[float], order: list[int]) -> None:
    assert trimmed.mean([found[it] for it in order if it < len(found)]) == trimmed.mean(found)


@pytest.mark.parametrize("disturbed", [0.0, 0.05])
@pytest.mark.parametrize("count", [3, 4, 8, 16])
def test_intervals_contain_the_truth_as_often_as_they_say(count: int, disturbed: float) -> None:
    """Also where a share of the rounds is far off."""
    draw, inside, trials = random.Random(count), 0, 4000
    for _ in range(trials):
        far = [40.0 * draw.choice([-1, 1]) if draw.random() < disturbed else 0.0 for _ in range(count)]
        found = trimmed.mean([it + draw.gauss(0, 1) for it in far])
        inside += abs(found.value) <= student.quantile(0.975, found.degrees) * found.standard_error
    assert 0.935 < inside / trials < 0.985


@pytest.mark.parametrize("count", [8, 16])
def test_among_undisturbed_rounds_it_is_as_good_as_the_plain_mean(count: int) -> None:
    draw = random.Random(count)
    samples = [[draw.gauss(0, 1) for _ in range(count)] for _ in range(2000)]
    ours, usual = (fmean(mean(it) ** 2 for it in samples) for mean in (lambda it: trimmed.mean(it).value, fmean))
    assert ours < 1.02 * usual


def test_a_change_of_the_clock_within_one_round_hides_no_gain() -> None:
    """Rounds of a GPT on a machine whose clock rose by a quarter for two blocks of one round and one of another."""
    first = [8.0, 8.1, 6.4, 7.9, 8.0, 8.0, 8.2, 8.2]
    again = [8.1, 8.0, 8.1, 8.1, 8.1, 8.1, 8.1, 8.0]
    both = [7.8, 6.2, 7.7, 7.8, 7.9, 7.9, 7.9, 7.9]
    found = compare_within_launch(first, again, both)
    assert found.speedup.value == pytest.approx(1.023, abs=0.002)
    assert found.baseline_speedup is not None
    assert found.baseline_speedup.value == pytest.approx(1.0, abs=0.01)
    untrimmed = math.exp(fmean(math.log(one / own) for one, own in zip(first, again, strict=True)))
    assert untrimmed < 0.975
