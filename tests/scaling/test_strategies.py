"""Strategies compared with the step that was measured under the script's own."""

from __future__ import annotations

import msgspec
import pytest

from hotlap.records import Cluster, CollectiveName, CollectiveRate, Link, MeasuredStep, ReadyGradient, ValidatedError
from hotlap.scaling.arithmetic import peak_bytes
from hotlap.scaling.published import validated_errors
from hotlap.scaling.strategies import Comparer, Way, ratio_error

DDP, ZERO, SHARDED, KEPT = Way("ddp"), Way("zero-1"), Way("fsdp2"), Way("fsdp2", reshards=False)
NAMES: tuple[CollectiveName, ...] = ("all-reduce", "all-gather", "reduce-scatter")
STEP = MeasuredStep(
    forward_seconds=0.1,
    backward_seconds=0.3,
    optimizer_seconds=0.04,
    gradients=tuple(ReadyGradient(share=(it + 1) / 10, size_bytes=4_000_000) for it in range(10)),
    units=10,
    parameter_bytes=40_000_000,
    gradient_bytes=40_000_000,
    optimizer_bytes=80_000_000,
    activation_bytes=50_000_000,
)


def cluster(bytes_per_second: float, *, latency: float = 1e-4, hidden: float = 1.0) -> Cluster:
    rates = tuple(
        CollectiveRate(name=it, backend="gloo", processes=2, latency_seconds=latency, bytes_per_second=bytes_per_second)
        for it in NAMES
    )
    unused = Link(bytes_per_second=1.0)
    return Cluster(devices_per_node=2, within=unused, between=unused, measured=rates, hidden_share=hidden)


def test_the_own_strategy_takes_what_was_measured() -> None:
    for own in (DDP, SHARDED, KEPT):
        comparer = Comparer(STEP, cluster(1e9), 2, own)
        assert comparer.compared(own).ratio == pytest.approx(1.0)
        assert comparer.exposed_seconds > 0


def test_fast_links_leave_only_the_update_to_share() -> None:
    comparer = Comparer(STEP, cluster(1e15, latency=0.0), 2, DDP)
    expected = 1 - 0.02 / 0.44
    assert [comparer.compared(it).ratio for it in (ZERO, SHARDED, KEPT)] == pytest.approx([expected] * 3, rel=1e-6)


def test_slow_links_make_what_sends_more_slower() -> None:
    comparer = Comparer(STEP, cluster(1e9, hidden=0.0), 2, DDP)
    assert 1 < comparer.compared(KEPT).ratio < comparer.compared(SHARDED).ratio
    fast = Comparer(STEP, cluster(4e9, hidden=0.0), 2, DDP)
    assert fast.compared(SHARDED).ratio < comparer.compared(SHARDED).ratio


def test_a_sharded_script_updates_its_share_of_the_parameters() -> None:
    """Replicated, each rank would update all of them."""
    comparer = Comparer(STEP, cluster(1e15, latency=0.0), 2, SHARDED)
    assert comparer.compared(DDP).ratio == pytest.approx(1 + 0.04 / 0.44, rel=1e-6)


def test_what_updating_shards_takes_beside_computing_is_not_taken_over() -> None:
    free, update = cluster(1e15, latency=0.0), 0.001
    rate = CollectiveRate(
        name="fsdp2-update", backend="gloo", processes=2, latency_seconds=update, bytes_per_second=1e15
    )
    here = msgspec.structs.replace(free, measured=(*free.measured, rate))
    to_ddp = Comparer(STEP, here, 2, SHARDED).compared(DDP).ratio
    assert to_ddp == pytest.approx((0.4 + 2 * (0.04 - 10 * update)) / 0.44, rel=1e-6)
    to_sharded = Comparer(STEP, here, 2, DDP).compared(SHARDED).ratio
    assert to_sharded == pytest.approx((0.4 + 0.02 + 10 * update) / 0.44, rel=1e-6)


def test_sending_updated_weights_moves_all_of_them_to_each_rank() -> None:
    """On two ranks a broadcast moves twice what an all-gather of the same buffer does, in one bucket of each rank."""
    comparer = Comparer(msgspec.structs.replace(STEP, optimizer_seconds=0.0), cluster(1e9), 2, DDP)
    assert comparer.compared(ZERO).ratio == pytest.approx(1 + (2 * 1e-4 + 80e6 / 1e9) / 0.4)


def test_memory_of_one_rank() -> None:
    comparer = Comparer(STEP, cluster(1e9), 2, DDP)
    peaks = {it: comparer.compared(it).peak_bytes for it in (DDP, ZERO, SHARDED, KEPT)}
    assert peaks[DDP] == 50e6 + 40e6 + 2 * 40e6 + 80e6
    assert peaks[ZERO] == peaks[DDP] - 40e6
    assert peaks[SHARDED] == 50e6 + 80e6 + 3 * 4e6 and peaks[KEPT] == 50e6 + 80e6 + 44e6
    assert peak_bytes("ddp", STEP, 2, copies=1) == peaks[DDP] - 40e6, "gradients that stay in their buckets"


def test_collectives_longer_than_the_step_predict_nothing() -> None:
    with pytest.raises(ValueError, match="longer than the step"):
        Comparer(STEP, cluster(1e7), 2, DDP)


def test_the_error_of_at_least_as_many_processes_counts() -> None:
    errors = [
        ValidatedError(
            strategy="zero-1",
            cases=6,
            mean_error=0.1,
            largest_error=0.2,
            most_ranks=4,
            ratio_errors=((2, 0.2), (4, 0.7)),
        )
    ]
    assert [ratio_error(errors, "zero-1", it) for it in (2, 3, 4, 5)] == [0.2, 0.7, 0.7, None]
    assert ratio_error(errors, "fsdp2", 2) is None


def test_errors_that_ship_have_those_of_ratios() -> None:
    found = {it.strategy: dict(it.ratio_errors) for it in validated_errors()}
    assert set(found["zero-1"]) == set(found["fsdp2"]) == {2, 4} and not found["ddp"]
