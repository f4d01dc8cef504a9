"""How findings show figures, places and names."""

from __future__ import annotations

import pytest

from hotlap.diagnose.shares import between, exactly
from hotlap.diagnose.wording import (
    count,
    duration,
    levers_for,
    line_of,
    name,
    per_second,
    percent,
    place,
    share_of_step,
    size,
)
from hotlap.levers.api import all_levers
from hotlap.records import CallSite


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (2.5e-7, "0.25 us"),
        (8.12e-4, "812 us"),
        (9.9949e-4, "999 us"),
        (9.9951e-4, "1.00 ms"),
        (0.0341, "34.1 ms"),
        (0.9999, "1.00 s"),
        (2.314, "2.31 s"),
        (418.0, "418 s"),
    ],
)
def test_a_time_has_three_digits_in_its_own_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds_each", "text"), [(4.0, "0.25"), (0.0293, "34.1"), (0.000092, "10,870"), (1e-9, "1,000,000,000")]
)
def test_a_rate_has_no_exponent(seconds_each: float, text: str) -> None:
    assert per_second(seconds_each) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0.0 %"), (0.0204, "2.0 %"), (0.0994, "9.9 %"), (0.0996, "10 %"), (1.0, "100 %")]
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


def test_a_share_shows_its_interval_where_it_has_one() -> None:
    assert share_of_step(exactly(0.31)) == "31 % of the step"
    assert share_of_step(between(0.31, 0.28, 0.34)) == "31 % of the step (95 % interval 28 % to 34 %)"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KiB"), (10 << 20, "10 MiB"), (3 << 29, "1.5 GiB")]
)
def test_bytes_are_in_binary_units(count: float, text: str) -> None:
    assert size(count) == text


def test_counts() -> None:
    assert count(1, "worker") == "1 worker"
    assert count(0, "worker") == "0 workers"
    assert count(2, "batch", "batches") == "2 batches"


def test_a_place_is_the_file_name_and_the_line() -> None:
    assert place(CallSite(role="step", file="/home/ada/work/train.py", line=31)) == "train.py:31"
    assert place(None) == "an unknown line"
    assert place(CallSite(role="step", file="", line=0)) == "an unknown line"
    assert line_of("train.py", 3) == "train.py:3"


def test_a_long_name_keeps_both_ends_on_one_line() -> None:
    assert name("Images") == "Images"
    long = name("begin" + "x" * 10_000 + "\n" + "y" * 10_000)
    assert len(long) <= 80 and long.startswith("begin") and "..." in long
    assert "\n" not in name("two\nlines")


def test_levers_declare_the_rules_they_address() -> None:
    for rule in ("loader-bound", "pageable-copies", "no-such-rule"):
        assert levers_for(rule) == tuple(it.name for it in all_levers().values() if rule in it.addresses)
    assert "loader" in levers_for("loader-bound")
    assert levers_for("no-such-rule") == ()
