"""Slopes that outliers cannot bend, and the difference between rising and having risen."""

from __future__ import annotations

import random

import pytest

from hotlap.measure.trend import keeps_rising, settled_growth, theil_sen_slope


def test_the_slope_of_a_line() -> None:
    assert theil_sen_slope([7 + 3 * row for row in range(50)]) == pytest.approx(3)


def test_a_fifth_of_outliers_does_not_bend_it() -> None:
    column = [100.0 + 2 * row for row in range(60)]
    for row in range(0, 60, 5):
        column[row] += 1e6
    assert theil_sen_slope(column) == pytest.approx(2, abs=0.5)


@pytest.mark.parametrize("rows", [200, 201, 1000, 4321])
def test_a_long_column_is_thinned_out_and_keeps_its_slope(rows: int) -> None:
    assert theil_sen_slope([0.25 * row for row in range(rows)]) == pytest.approx(0.25)


@pytest.mark.parametrize("column", [[], [1.0]])
def test_a_slope_needs_two_rows(column: list[float]) -> None:
    with pytest.raises(ValueError, match="two rows"):
        theil_sen_slope(column)


def test_a_line_keeps_rising_despite_noise() -> None:
    draw = random.Random(0)
    assert keeps_rising([10 * row + draw.uniform(-30, 30) for row in range(60)])


@pytest.mark.parametrize(
    ("what", "column"),
    [
        ("too short", [float(row) for row in range(8)]),
        ("level", [5.0] * 40),
        ("falls", [-float(row) for row in range(40)]),
        ("jumps early", [float(row > 8) for row in range(40)]),
        ("jumps in the middle", [float(row > 20) for row in range(40)]),
        ("jumps late", [float(row > 31) for row in range(40)]),
        ("settles", [1 - 0.85**row for row in range(40)]),
        ("rises and falls", [float(min(row, 40 - row)) for row in range(40)]),
        ("sawtooth", [float(row * 7 % 13) for row in range(39)]),
    ],
)
def test_what_does_not_keep_rising(what: str, column: list[float]) -> None:
    assert not keeps_rising(column), what


def test_noise_alone_rarely_rises() -> None:
    draw = random.Random(1)
    assert sum(keeps_rising([draw.random() for _ in range(45)]) for _ in range(1000)) <= 3


def test_growth_leaves_out_what_fills_at_first() -> None:
    assert settled_growth([100 * min(row, 4) + 2 * row for row in range(16)]) == pytest.approx(2)
    assert settled_growth([min(row, 4) for row in range(16)]) == 0
    assert settled_growth([16 - row for row in range(16)]) == 0
    assert settled_growth(list(range(11))) == 0  # too few rows to tell
