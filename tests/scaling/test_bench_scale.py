"""The benchmark of predictions: its errors and its choice, by arithmetic."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bench.scale.__main__ import Row, Step, errors_of, kept, text_of

from hotlap.records import Cluster, Link, MeasuredStep, ReadyGradient, Strategy
from hotlap.scaling import predict


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


def test_a_stored_piece_is_predicted_by_the_present_simulator(tmp_path: Path) -> None:
    step = MeasuredStep(
        forward_seconds=0.3,
        backward_seconds=0.5,
        optimizer_seconds=0.1,
        gradients=(ReadyGradient(share=1.0, size_bytes=2**20),),
        threads=1,
    )
    link = Link(bytes_per_second=1e6)
    cluster = Cluster(devices_per_node=4, within=link, between=link, cores=2)
    stored = msgspec.structs.replace(ROW, measured=step, cluster=cluster)
    (tmp_path / "gpt-small.json").write_bytes(msgspec.json.encode(stored))
    points = {(it.strategy, it.ranks): it for it in predict(step, cluster).points}
    for it in kept(tmp_path, "gpt-small").steps:
        assert it.predicted_seconds == points[it.strategy, it.processes].step_seconds
        assert it.measured_seconds in (1.25, 1.0, 1.5, 2.0, 2.5), "measured then"


def test_errors_of_ratios_are_by_number_of_processes() -> None:
    ddp, zero, fsdp = errors_of([ROW])
    assert not ddp.ratio_errors
    assert dict(zero.ratio_errors) == pytest.approx({2: 0.5, 4: 0.0})
    assert dict(fsdp.ratio_errors) == pytest.approx({2: 0.25, 4: 0.2})
