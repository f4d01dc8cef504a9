"""What the comparison of switched levers with launched ones writes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.crossover.__main__ import Row, text_of

from hotlap.records import Estimate


def ratio(low: float, high: float) -> Estimate:
    return Estimate(value=(low + high) / 2, low=low, high=high, unit="x")


def test_the_table_says_where_the_two_disagree() -> None:
    rows = [
        Row("bert", "one", ratio(1.1, 1.3), ratio(1.2, 1.4), 0.9),
        Row("bert", "two", ratio(1.1, 1.2), ratio(1.3, 1.4), 4.2),
        Row("gpt", "three", trouble="It crashed."),
    ]
    text = text_of(rows, 3)
    assert "The two intervals overlap for 1 of 2 settings." in text
    assert "| bert | two | 1.150x (1.100 to 1.200) | 1.350x (1.300 to 1.400) | 4.2 |" in text
    assert "| gpt | three | It crashed. |" in text
