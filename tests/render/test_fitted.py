"""Tables on terminals of 60, 80 and 120 characters: no word is broken."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from hotlap.render.blocks import Table
from hotlap.render.layout import table_of
from hotlap.render.lines import cell_width

WIDTHS = (60, 80, 120)
CANDIDATES = Table(
    ("", ">speedup", "interval", ">median", ">p99", ">memory", ">quality"),
    (
        ("unmodified", "1x", "", "12.4 ms", "15.0 ms", "1.2 GiB", "1"),
        ("onnxruntime (int8, 4 threads), Pareto", "2.31x", "2.25 to 2.37", "5.3 ms", "6.2 ms", "410 MiB", "0.9991"),
        ("half-weights (bfloat16), Pareto", "1.42x", "1.38 to 1.46", "8.7 ms", "11.2 ms", "640 MiB", "0.99998"),
    ),
)
PREDICTED = Table(
    ("ranks", "strategy", ">step", ">efficiency", ">samples/s", ">memory", "limited by"),
    (
        ("1", "ddp", "412 ms", "100 %", "77.7", "14.2 GiB", "computing"),
        ("64", "fsdp2", "530 ms", "78 %", "3,864", "3.1 GiB", "all-gather between nodes, of which 21 % is not hidden."),
        ("512", "zero-1", "611 ms", "67 %", "26,812", "6.0 GiB", "reduce-scatter between nodes, and the stragglers."),
    ),
)
METRICS = Table(
    ("metric", ">before", ">after", ">ratio", "interval", "verdict"),
    (("peak memory", "1.4 GiB", "920 MiB", "0.64x", "0.63 to 0.65", "better, perhaps beyond the limit"),),
)


def drawn(table: Table, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(table_of(table))
    return captured.get().splitlines()


@pytest.mark.parametrize(
    ("name", "table"), [("candidates", CANDIDATES), ("predicted", PREDICTED), ("metrics", METRICS)]
)
def test_a_table_at_three_widths(name: str, table: Table, matches_snapshot: Callable[[str, str], bool]) -> None:
    shown = "\n\n".join(f"{width} characters\n" + "\n".join(drawn(table, width)) for width in WIDTHS)
    assert matches_snapshot(f"table-{name}", f"{shown}\n")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("table", [CANDIDATES, PREDICTED, METRICS])
def test_every_word_of_a_table_is_whole(table: Table, width: int) -> None:
    assert_whole(table, width)


def assert_whole(table: Table, width: int) -> None:
    lines = drawn(table, width)
    assert all(cell_width(it) <= width for it in lines)
    words = words_of(lines)
    for cell in (*table.headings, *(it for row in table.rows for it in row)):
        assert set(cell.removeprefix(">").split()) <= words


def words_of(lines: list[str]) -> set[str]:
    return {word.rstrip(":;") for line in lines for word in line.split()}


WORDS = st.lists(st.text("abcdefg0123456789.%", min_size=1, max_size=18), max_size=6).map(" ".join)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.integers(1, 8), st.data(), st.integers(24, 130))
def test_any_table_keeps_its_words(columns: int, data: st.DataObject, width: int) -> None:
    cells = st.tuples(*[WORDS] * columns)
    heads = data.draw(st.tuples(*[st.sampled_from(["name", ">share of all", ">ms", "why it is so"])] * columns))
    rows = data.draw(st.lists(cells, min_size=1, max_size=4))
    lines = drawn(Table(heads, tuple(rows)), width)
    assert all(cell_width(it) <= width for it in lines)
    assert {word for row in rows for cell in row for word in cell.split()} <= words_of(lines)


def test_without_rows_there_are_headings_only() -> None:
    assert drawn(Table(("metric", ">before"), ()), 80) == ["  metric  before"]
