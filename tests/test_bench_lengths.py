"""The benchmark of batches of similar length: what it asks for exists, and what its table says."""

from __future__ import annotations

from bench.lengths.__main__ import WAYS, Row, padding_of, setting_of, text_of

from hotlap.levers.api import find
from hotlap.levers.support.lengths import GIVEN, TRIED, Batch
from hotlap.levers.support.lengths import padding_of as counted
from hotlap.records import Estimate, LengthFacts

TOKENS = (3, 30, 5, 7, 28, 4, 6, 2)
OWN = [Batch((0, 1, 2, 3), 30), Batch((4, 5, 6, 7), 28)]
LENGTHS = LengthFacts(
    mask="attention_mask",
    sequences=8,
    tokens=sum(TOKENS),
    shortest=2,
    median=5.5,
    longest=30,
    paddings=tuple(counted(TOKENS, OWN, it) for it in (GIVEN, *TRIED)),
)


def test_its_ways_are_settings_of_the_lever() -> None:
    tried = {(it.order, it.multiple) for it in TRIED}
    assert set(WAYS) <= tried
    parameters = find("length-bucketing").parameters
    assert all(set(dict(setting_of(*it).values)) == set(parameters) for it in WAYS)


def test_the_table_has_positions_speed_and_error() -> None:
    own, sorted_ = LENGTHS.paddings[0].positions, padding_of(LENGTHS, "sorted", 1)
    assert (own, sorted_.positions) == (4 * 30 + 4 * 28, 4 * 30 + 4 * 5)
    rows = [
        Row(
            size=4,
            way="sorted",
            fewer_positions=own / sorted_.positions,
            speedup=Estimate(value=1.5, low=1.4, high=1.6),
            error=1.2e-7,
        )
    ]
    text = text_of(rows, LENGTHS)
    assert "8 sentences of 2 to 30 tokens (median 5.5)" in text
    assert "| 4 | sorted | 1.66x | 1.50x (1.40 to 1.60) | 1.2e-07 |" in text
