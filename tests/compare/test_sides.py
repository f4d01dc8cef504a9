"""What a side is reduced to: steps, parts that add up, means over devices."""

from __future__ import annotations

import msgspec
import pytest
from building import breakdown, kernel, study

from hotlap.compare import Side, side_of_study, side_of_traces
from hotlap.compare.records import Account, Table
from hotlap.traces.records import HostTime, OperatorRow


def account(side: Side, table: Table) -> Account:
    (found,) = [it for it in side.accounts if it.table == table]
    return found


def seconds(side: Side, table: Table) -> dict[str, float]:
    return {it.name: pytest.approx(it.seconds) for it in account(side, table).amounts}  # type: ignore[misc]


def test_the_parts_of_a_device_add_up_to_the_step() -> None:
    side = side_of_traces("a", [breakdown([100, 120, 80], compute_ms=150, exposed_ms=30, copies_ms=9)])
    assert side.step_seconds == pytest.approx((0.1, 0.12, 0.08))
    assert side.seconds == pytest.approx(0.1)
    parts = account(side, "device").amounts
    assert sum(it.seconds for it in parts) == pytest.approx(side.traced_seconds)
    assert seconds(side, "device") == {
        "compute": 0.05, "exposed_communication": 0.01, "copies": 0.003, "idle": 0.037
    }  # fmt: skip


def test_kernels_and_causes_are_of_a_step_and_counted() -> None:
    side = side_of_traces("a", [breakdown([100, 100], causes={"data_loader": 40}, kernels=[kernel("gemm", 6, 30)])])
    (gemm,) = account(side, "kernels").amounts
    assert (gemm.name, gemm.count) == ("gemm", 3)
    assert gemm.seconds == pytest.approx(0.015)
    (waiting,) = account(side, "idle").amounts
    assert (waiting.name, waiting.count) == ("data_loader", 2)
    assert waiting.seconds == pytest.approx(0.02)


def test_the_slowest_rank_makes_the_step_and_devices_are_averaged() -> None:
    traces = [
        breakdown([100, 100], compute_ms=200, kernels=[kernel("gemm", 4, 20)], rank=0),
        breakdown([90, 130], compute_ms=100, kernels=[kernel("gemm", 4, 40)], rank=1),
    ]
    side = side_of_traces("a", traces)
    assert side.step_seconds == pytest.approx((0.1, 0.13))
    assert account(side, "kernels").amounts[0].seconds == pytest.approx(0.015)
    assert seconds(side, "device")["compute"] == 0.075


def test_several_traces_of_one_rank_are_further_steps() -> None:
    side = side_of_traces("a", [breakdown([100, 100]), breakdown([120])])
    assert side.step_seconds == pytest.approx((0.1, 0.1, 0.12))


def test_without_marks_a_whole_trace_counts_as_a_step() -> None:
    side = side_of_traces("a", [breakdown([100, 100], compute_ms=50, marks_steps=False)])
    assert not side.marks_steps
    assert side.seconds == pytest.approx(0.2)
    assert seconds(side, "device")["compute"] == 0.05


def test_a_kernel_table_says_what_it_may_lack() -> None:
    whole = side_of_traces("a", [breakdown([10, 10], kernels=[kernel("a", 1, 4), kernel("b", 1, 2)])])
    cut = side_of_traces("a", [breakdown([10, 10], kernels=[kernel("a", 1, 4), kernel("b", 1, 2)], distinct=50)])
    assert account(whole, "kernels").unknown_below_seconds == 0
    assert account(cut, "kernels").unknown_below_seconds == pytest.approx(0.001)


def test_without_a_device_the_host_and_its_operators_are_reported() -> None:
    bare = msgspec.structs.replace(breakdown([10, 10]), devices=())
    operators = (
        OperatorRow(name="aten::mm", shapes=((2, 2),), calls=4, host_nanoseconds=6_000_000),
        OperatorRow(name="aten::mm", shapes=((3, 3),), calls=2, host_nanoseconds=2_000_000),
    )
    host = HostTime(
        step_nanoseconds=20_000_000, operator_nanoseconds=12_000_000, loader_nanoseconds=4_000_000,
        sync_nanoseconds=0, python_nanoseconds=4_000_000,
    )  # fmt: skip
    side = side_of_traces("a", [bare], operators, host)
    assert [it.table for it in side.accounts] == ["host", "operators"]
    assert sum(it.seconds for it in account(side, "host").amounts) == pytest.approx(0.01)
    (product,) = account(side, "operators").amounts
    assert (product.name, product.count) == ("aten::mm", 3)
    assert product.seconds == pytest.approx(0.004)


def test_without_a_device_the_steps_separate_the_loader_from_the_rest() -> None:
    bare = msgspec.structs.replace(
        breakdown([10, 10]),
        devices=(),
        steps=tuple(
            msgspec.structs.replace(it, loader_nanoseconds=loader)
            for it, loader in zip(breakdown([10, 10]).steps, (2_000_000, 4_000_000), strict=True)
        ),
    )
    side = side_of_traces("a", [bare])
    assert [it.table for it in side.accounts] == ["host"]
    assert seconds(side, "host") == {"loader": 0.003, "rest": 0.007}


def test_a_study_gives_its_untouched_steps_and_its_phases() -> None:
    side = side_of_study("a", study((9.0,) * 6 + (0.1,) * 30, data_wait=0.02))
    assert not side.profiled
    assert side.step_seconds == (0.1,) * 30, "warm-up is left out"
    assert side.samples_per_step == 32
    assert sum(it.seconds for it in account(side, "phases").amounts) == pytest.approx(side.seconds)
    assert side.traced_seconds == 0
    assert side.title == "train.py"


def test_a_study_with_a_trace_gives_both() -> None:
    side = side_of_study("a", study(), [breakdown([130, 130], compute_ms=100)])
    assert side.seconds == pytest.approx(0.1)
    assert side.traced_seconds == pytest.approx(0.13)
    assert [it.table for it in side.accounts] == ["phases", "device", "idle", "kernels"]


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match="trace"):
        side_of_traces("a", [])
    with pytest.raises(ValueError, match="time account"):
        side_of_study("a", msgspec.structs.replace(study(), account_before=None))


def test_doubts_about_a_trace_stay_with_it() -> None:
    side = side_of_traces("a", [breakdown([10, 10], unreliable="kernels are missing")])
    assert side.doubts == ("The trace trace.json is unreliable: kernels are missing.",)
