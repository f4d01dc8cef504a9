"""Paragraphs, tables and bars as lines: nothing is lost, and no line exceeds the width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.render.lines import Paper, Styled, Table, bar, cell_width, folded, paragraph
from hotlap.render.parts import Part

words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Mn")), max_size=12)


@given(st.lists(words, max_size=8), st.integers(2, 30))
def test_wrapping_loses_nothing_and_fits(these: list[str], width: int) -> None:
    text = " ".join(these)
    lines = list(folded(text, width))
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert max(map(cell_width, lines)) <= width


def test_wrapping_prefers_breaks_between_words() -> None:
    assert list(folded("the host issued work too slowly", 12)) == ["the host", "issued work", "too slowly"]
    assert list(folded("a verylongword", 6)) == ["a", "verylo", "ngword"]
    assert list(folded("", 5)) == [""]


def test_wrapping_keeps_the_indentation() -> None:
    assert list(folded("  of them in backward", 12)) == ["  of them in", "  backward"]
    assert list(folded("   ", 2)) == [""]


def test_wide_and_combining_characters_count_by_their_width() -> None:
    assert cell_width("abc") == 3
    assert cell_width("\u6838\u5fc3") == 4
    assert cell_width("e\u0301") == 1
    assert list(folded("\u6838\u5fc3\u6838", 4)) == ["\u6838\u5fc3", "\u6838"]


def test_a_paragraph_is_indented_and_coloured() -> None:
    assert list(paragraph("one two", Paper(6), indent=2)) == ["  one", "  two"]
    assert list(paragraph("one", Paper(6, colours=True), style="dim")) == ["\x1b[2mone\x1b[0m"]


def test_a_table_aligns_its_columns() -> None:
    table = Table("name", ">time", "", about="two rows")
    table.add("a", "10 ms")
    table.add("longer", "1 ms", "!")
    assert list(table.lines(Paper(40))) == [
        "  two rows",
        "  name     time",
        "  a       10 ms",
        "  longer   1 ms  !",
    ]


def test_a_table_without_column_names_has_no_header() -> None:
    table = Table("", ">")
    table.add(Styled("#", "green"), "5")
    assert list(table.lines(Paper(20))) == ["  #  5"]
    assert list(table.lines(Paper(20, colours=True))) == ["  \x1b[32m#\x1b[0m  5"]


def test_an_empty_table_is_only_its_header() -> None:
    assert list(Table("name", ">time").lines(Paper(20))) == ["  name  time"]


def test_optional_columns_are_left_out_if_empty() -> None:
    table = Table("name", "?>size", "?place")
    table.add("a", "", "")
    assert list(table.lines(Paper(40))) == ["  name", "  a"]
    table.add("b", "12")
    assert list(table.lines(Paper(40))) == ["  name  size", "  a", "  b       12"]


def test_text_is_wrapped_before_numbers() -> None:
    table = Table("name", ">time")
    table.add("a name of several words", "1000 ms")
    assert list(table.lines(Paper(32))) == ["  name" + " " * 22 + "time", "  a name of several      1000 ms", "  words"]


def test_a_name_that_would_wrap_too_often_gets_its_own_line() -> None:
    table = Table("name", ">time", ">calls")
    table.add(Styled("a_name_of_several_words", "bold"), "1000 ms", "17")
    table.add("", "10 ms", "1")
    assert list(table.lines(Paper(30))) == [
        "  name",
        "       time  calls",
        "  a_name_of_several_words",
        "    1000 ms     17",
        "      10 ms      1",
    ]
    assert list(table.lines(Paper(38)))[2] == "  a_name_of_several_words", "a word is not broken for two characters"
    assert list(table.lines(Paper(41)))[1] == "  a_name_of_several_words  1000 ms     17"


@given(
    st.lists(st.lists(words, min_size=4, max_size=4), min_size=1, max_size=5),
    st.integers(20, 70),
    st.booleans(),
)
def test_no_line_is_longer_than_the_width(rows: list[list[str]], width: int, colours: bool) -> None:
    table = Table("first", ">second", "third", ">a rather long fourth")
    for row in rows:
        table.add(*row)
    lines = list(table.lines(Paper(width)))
    assert max(map(cell_width, lines)) <= width
    shown = "".join(lines).replace(" ", "")
    assert all(character in shown for row in rows for cell in row for character in cell)


@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_bar_fills_its_line(ascii_only: bool) -> None:
    parts = [Part(30, "green", "#", "+"), Part(70, "red", ".", "-")]
    sign, other = ("+", "-") if ascii_only else ("#", ".")
    assert bar(parts, 100, Paper(12, ascii_only=ascii_only), indent=2) == "  " + sign * 3 + other * 7
    if not ascii_only:
        assert bar(parts, 100, Paper(10, colours=True)) == "\x1b[32m███\x1b[0m\x1b[31m███████\x1b[0m"
