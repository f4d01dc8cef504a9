"""Bars: their cells add up and follow the scale."""

from __future__ import annotations

import fakes
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hotlap.records import PhaseAccount
from hotlap.render.account import bottleneck, parts
from hotlap.render.bars import StackedBar, cells

AMOUNTS = st.lists(st.floats(min_value=0, max_value=1e3), min_size=1, max_size=8)


@given(AMOUNTS, st.floats(min_value=1, max_value=4), st.integers(min_value=1, max_value=200))
def test_cells_add_up_to_the_bar(amounts: list[float], room: float, width: int) -> None:
    full = sum(amounts) * room
    found = cells(amounts, full, width)
    assert all(it >= 0 for it in found)
    if full > 0:
        assert abs(sum(found) - sum(amounts) / full * width) <= 0.5 + 1e-6
        exact = [it / full * width for it in amounts]
        assert all(abs(a - b) <= 1 + 1e-6 for a, b in zip(found, exact, strict=True))


@pytest.mark.parametrize(("full", "width"), [(0, 10), (-1, 10), (5, 0)])
def test_bars_without_a_scale_are_empty(full: float, width: int) -> None:
    assert cells([1, 2], full, width) == [0, 0]


def test_two_bars_share_a_scale() -> None:
    console = Console(width=212, color_system=None)
    with console.capture() as capture:
        for account in (fakes.BEFORE, fakes.AFTER):
            console.print(StackedBar(parts=parts(account), full=fakes.BEFORE.wall))
    before, after = (line.rstrip() for line in capture.get().rstrip("\n").split("\n"))
    assert (len(before), len(after)) == (212, 58)
    assert before.count("█") == 101


def test_bottleneck() -> None:
    name, share = bottleneck(fakes.BEFORE)
    assert name == "data wait"
    assert share == pytest.approx(0.101 / 0.212)
    assert bottleneck(PhaseAccount()) == ("", 0.0)
