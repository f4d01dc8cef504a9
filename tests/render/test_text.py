"""Numbers and foreign text as they are shown."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.records import Estimate, Setting
from hotlap.render import text

ANY_TEXT = st.text(st.characters(codec=None), max_size=200)


@given(ANY_TEXT)
def test_cleaned_text_has_no_cursor_movements(foreign: str) -> None:
    cleaned = text.clean(foreign)
    assert all(it == "\n" or unicodedata.category(it)[0] != "C" for it in cleaned)
    assert text.clean(cleaned) == cleaned
    cleaned.encode("utf-8")


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=200))
def test_ordinary_text_is_unchanged(ordinary: str) -> None:
    assert text.clean(ordinary) == ordinary


@given(ANY_TEXT, st.integers(min_value=10, max_value=80))
def test_one_line_is_single_and_short(foreign: str, limit: int) -> None:
    line = text.one_line(foreign, limit=limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_escape_sequences_are_removed_whole() -> None:
    assert text.clean("\x1b[31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x07 \x9b2Jend") == "red link end"


def test_only_the_last_state_of_a_progress_bar_is_kept() -> None:
    output = "start\n 10%|#\r 50%|##\r100%|###\r\nloss 0.1\n\n"
    assert text.last_lines(output, 5) == "start\n100%|###\nloss 0.1"
    assert text.last_lines(output, 1) == "loss 0.1"


def test_long_output_keeps_its_end() -> None:
    cleaned = text.clean("a" * 100_000 + "the end")
    assert cleaned.endswith("the end")
    assert len(cleaned) < 5000


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 ms"),
        (8.12e-4, "812 us"),
        (0.0341, "34.1 ms"),
        (0.212, "212 ms"),
        (2.31, "2.31 s"),
        (59.4, "59.4 s"),
        (252, "4 min 12 s"),
        (600, "10 min"),
        (3780, "1 h 03 min"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1024, "1.0 KiB"), (120 * 2**20, "120 MiB"), (1.4 * 2**30, "1.4 GiB")],
)
def test_sizes(size: float, shown: str) -> None:
    assert text.size(size) == shown


def test_change_of_size() -> None:
    assert text.change_of_size(2**30, 2 * 2**30) == "+1.0 GiB"
    assert text.change_of_size(8 * 2**30, 5 * 2**30) == "-3.0 GiB"
    assert text.change_of_size(1000 * 2**20, 1001 * 2**20) == "same"
    assert text.change_of_size(0, 2**30) == ""


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.363, "36 %"),
        (0.001, "0.1 %"),
        (0.0002, "0.02 %"),
        (7e-7, "under 0.01 %"),
        (0.05, "5 %"),
        (0, "0 %"),
        (1, "100 %"),
    ],
)
def test_shares(share: float, shown: str) -> None:
    assert text.share(share) == shown


def test_a_speedup_comes_with_its_interval() -> None:
    found = Estimate(value=1.8312, low=1.792, high=1.881)
    assert text.speedup(found, 0.95) == "1.83x (95 % interval 1.79 to 1.88)"
    assert text.speedup(found, 0.985) == "1.83x (98.5 % interval 1.79 to 1.88)"
    assert text.speedup(Estimate(value=12.34, low=9.9, high=101.2), 0.99) == "12.3x (99 % interval 9.90 to 101)"


def test_settings_show_enabled_switches() -> None:
    setting = Setting(lever="loader", values=(("num_workers", 4), ("persistent_workers", False), ("pin_memory", True)))
    assert text.setting(setting) == "loader (num_workers 4, pin_memory)"
    assert text.setting(Setting(lever="channels-last")) == "channels-last"


def test_lists() -> None:
    assert [text.listed(list(it)) for it in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]


def test_rates() -> None:
    assert text.rate(98.4e12, "FLOP") == "98.4 TFLOP/s"
    assert text.rate(950, "B") == "950 B/s"
