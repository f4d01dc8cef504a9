"""The benchmark of predictions: its errors and its choice, by arithmetic."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bench.scale.__main__ import Row, Step, errors_of, kept, text_of

from hotlap.records import Strategy


def step(strategy: Strategy, processes: int, predicted: float, measured: float) -> Step:
    return Step(
        strategy=strategy,
        processes=processes,
        predicted_seconds=predicted,
        measured_seconds=measured,
        predicted_bytes=2**20,
        added_bytes=2.0**21,
    )


ROW = Row(
    name="gpt-small",
    parameters_bytes=2**20,
    one_process_seconds=0.9,
    steps=(
        step("ddp", 2, 1.0, 1.25), step("zero-1", 2, 1.2, 1.0), step("fsdp2", 2, 1.5, 1.5), step("ddp", 4, 2.0, 2.0),
        step("zero-1", 4, 2.0, 2.0), step("fsdp2", 4, 2.0, 2.5),
    ),
)  # fmt: skip


def test_errors_are_those_of_each_strategy() -> None:
    ddp, zero, fsdp = errors_of([ROW])
    assert (ddp.cases, ddp.most_ranks) == (2, 4) and ddp.machine
    assert ddp.mean_error == pytest.approx(0.1) and ddp.largest_error == pytest.approx(0.2)
    assert zero.largest_error == pytest.approx(0.2) and fsdp.largest_error == pytest.approx(0.2)


def test_the_choice_is_compared_with_the_best() -> None:
    chosen, best, regret = ROW.choice(2)
    assert (chosen.strategy, best.strategy) == ("ddp", "zero-1") and regret == pytest.approx(0.25)
    text = text_of([ROW])
    assert "promise of 3 % is not kept" in text and "| gpt-small | ddp | zero-1 | 25.0 % |" in text


def test_a_gain_below_one_percent_is_no_reason_to_leave_ddp() -> None:
    steps = (step("ddp", 2, 1.0, 1.0), step("zero-1", 2, 1.4, 1.5), step("fsdp2", 2, 0.995, 2.0))
    chosen, _, regret = msgspec.structs.replace(ROW, steps=steps).choice(2)
    assert (chosen.strategy, regret) == ("ddp", 0.0)
    steps = (*steps[:2], step("fsdp2", 2, 0.98, 2.0))
    chosen, _, regret = msgspec.structs.replace(ROW, steps=steps).choice(2)
    assert (chosen.strategy, regret) == ("fsdp2", 1.0)


def test_a_finished_piece_is_not_measured_again(tmp_path: Path) -> None:
    (tmp_path / "gpt-small.json").write_bytes(msgspec.json.encode(ROW))
    assert kept(tmp_path, "gpt-small") == ROW
