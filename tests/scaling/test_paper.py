"""The page of the paper exercise has the table that the simulator computes."""

from __future__ import annotations

from pathlib import Path

from bench.scale.paper import CASES, rate, text

PAGE = Path(__file__).parents[2] / "docs" / "paper-exercise.md"


def test_the_page_has_the_computed_table() -> None:
    assert text() in PAGE.read_text(encoding="utf-8")


def test_one_node_is_predicted_as_it_is_known() -> None:
    assert [round(rate(it, 8)) for it in CASES] == [it.known for it in CASES]
