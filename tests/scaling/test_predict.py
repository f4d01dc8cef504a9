"""The simulator, by arithmetic."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from hotlap.records import Cluster, CollectiveName, CollectiveRate, Link, MeasuredStep, ReadyGradient, ValidatedError
from hotlap.scaling import predict, rank_counts
from hotlap.scaling.arithmetic import checkpoint_interval, cost_per_million, expected_largest, peak_bytes
from hotlap.scaling.links import collective_seconds
from hotlap.scaling.predict import best_points, changes_of, point_of
from hotlap.scaling.schedules import buckets, units
from hotlap.scaling.simulate import Task, simulate

MEBIBYTE = 1 << 20
FREE = Link(bytes_per_second=1e18)
STEP = MeasuredStep(
    forward_seconds=1.0,
    backward_seconds=2.0,
    optimizer_seconds=0.5,
    gradients=tuple(ReadyGradient(share=(it + 1) / 4, size_bytes=26 * MEBIBYTE) for it in range(4)),
    samples=8,
    units=4,
    parameter_bytes=104 * MEBIBYTE,
    gradient_bytes=104 * MEBIBYTE,
    optimizer_bytes=208 * MEBIBYTE,
    activation_bytes=10 * MEBIBYTE,
)


def cluster(
    link: Link = FREE, *, nodes: int = 1, each: int = 8, between: Link | None = None, **more: object
) -> Cluster:
    return Cluster(nodes=nodes, devices_per_node=each, within=link, between=between or link, **more)  # type: ignore[arg-type]


# -- streams --------------------------------------------------------------------------------------


def test_streams_overlap_where_nothing_waits() -> None:
    found = simulate([Task("compute", 3.0), Task("communicate", 2.0)])
    assert found.seconds == 3.0 and found.exposed_seconds == 0.0


def test_streams_that_share_everything_take_turns() -> None:
    found = simulate([Task("compute", 3.0), Task("communicate", 2.0)], hidden_share=0.0)
    assert found.seconds == pytest.approx(5.0)


def test_half_of_the_shorter_one_is_hidden() -> None:
    found = simulate([Task("compute", 3.0), Task("communicate", 2.0)], hidden_share=0.5)
    assert found.seconds == pytest.approx(3.0 + 2.0 - 0.5 * 2.0)


def test_a_task_waits_for_another_stream() -> None:
    found = simulate(
        [Task("compute", 1.0), Task("communicate", 4.0, (0,)), Task("compute", 1.0), Task("compute", 1.0, (1,))]
    )
    assert found.seconds == 6.0 and found.exposed_seconds == 3.0


def test_tasks_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        simulate([Task("compute", 1.0, (1,)), Task("communicate", 1.0, (0,))])


_SECONDS = some.floats(0, 100)


@given(some.lists(some.tuples(some.booleans(), _SECONDS), max_size=20), some.floats(0, 1))
def test_a_step_lies_between_its_longer_stream_and_the_sum(tasks: list[tuple[bool, float]], hidden: float) -> None:
    made = [Task("compute" if computes else "communicate", seconds) for computes, seconds in tasks]
    streams = [math.fsum(it.seconds for it in made if it.stream == name) for name in ("compute", "communicate")]
    found = simulate(made, hidden).seconds
    assert max(streams) - 1e-6 <= found <= sum(streams) + 1e-6
    assert found == pytest.approx(sum(streams) - hidden * min(streams), abs=1e-6)


# -- collectives ----------------------------------------------------------------------------------


def test_a_ring_sends_everything_twice() -> None:
    link = Link(bytes_per_second=100.0, latency_seconds=0.5)
    assert collective_seconds("all-gather", 400, 4, cluster(link)) == pytest.approx(3 * (0.5 + 1.0))
    assert collective_seconds("reduce-scatter", 400, 4, cluster(link)) == pytest.approx(3 * (0.5 + 1.0))
    assert collective_seconds("all-reduce", 400, 4, cluster(link)) == pytest.approx(6 * (0.5 + 1.0))


def test_a_tree_reduces_little_between_many_nodes_sooner() -> None:
    slow = Link(bytes_per_second=1e9, latency_seconds=1e-3)
    found = collective_seconds("all-reduce", 8, 1024, cluster(nodes=1024, each=1, between=slow))
    assert found == pytest.approx(2 * 10 * 1e-3, rel=1e-3)


def test_the_slower_link_sets_the_pace_between_nodes() -> None:
    slow = Link(bytes_per_second=10.0)
    here = cluster(nodes=2, each=2, between=slow)
    assert collective_seconds("all-gather", 40, 2, here) < 1e-9
    assert collective_seconds("all-gather", 40, 4, here) == pytest.approx(3.0)


def test_a_measured_rate_is_used_as_it_was_measured() -> None:
    rate = CollectiveRate(name="all-reduce", backend="gloo", processes=2, latency_seconds=0.25, bytes_per_second=100.0)
    here = cluster(measured=(rate,))
    assert collective_seconds("all-reduce", 100, 2, here) == pytest.approx(1.25)
    # As a ring of four: 6 messages of a quarter of the bytes, where two ranks had 2 of a half.
    assert collective_seconds("all-reduce", 100, 4, here) == pytest.approx(6 * (0.125 + 25 / 100.0))


def rate_of(name: CollectiveName, seconds: float, processes: int = 2) -> CollectiveRate:
    return CollectiveRate(
        name=name, backend="gloo", processes=processes, latency_seconds=seconds, bytes_per_second=1e18
    )


def test_what_a_strategy_does_is_used_as_it_was_measured() -> None:
    here = cluster(measured=(rate_of("all-gather", 0.25), rate_of("fsdp2-gather", 1.0), rate_of("fsdp2-update", 0.5)))
    assert collective_seconds("fsdp2-gather", 100, 2, here) == pytest.approx(1.0)
    assert collective_seconds("fsdp2-update", 100, 2, here) == pytest.approx(0.5)


def test_between_more_ranks_only_the_collective_takes_longer() -> None:
    here = cluster(measured=(rate_of("all-gather", 0.25), rate_of("fsdp2-gather", 1.0), rate_of("fsdp2-update", 0.5)))
    assert collective_seconds("fsdp2-gather", 100, 5, here) == pytest.approx(4 * 0.25 + 0.75)
    assert collective_seconds("fsdp2-update", 100, 5, here) == pytest.approx(0.5)


def test_calls_that_do_not_wait_for_each_other_take_less_than_one_by_one() -> None:
    here = cluster(measured=(rate_of("all-gather", 0.25), rate_of("zero-1-update", 0.1)))
    assert collective_seconds("zero-1-update", 100, 2, here) == pytest.approx(0.1)
    assert collective_seconds("zero-1-update", 100, 3, here) == pytest.approx(2 * 0.25 - 0.15)


def test_without_a_measurement_a_strategy_takes_what_its_collectives_take() -> None:
    link = Link(bytes_per_second=100.0, latency_seconds=0.5)
    assert collective_seconds("fsdp2-gather", 400, 4, cluster(link)) == pytest.approx(3 * (0.5 + 1.0))
    assert collective_seconds("fsdp2-scatter", 400, 4, cluster(link)) == pytest.approx(3 * (0.5 + 1.0))
    assert collective_seconds("fsdp2-update", 400, 4, cluster(link)) == 0.0


def test_parts_and_updates_of_fsdp2_are_counted() -> None:
    """Four parts are gathered for forward, three of them again for backward, and all are reduced."""
    measured = (rate_of("fsdp2-gather", 0.1), rate_of("fsdp2-scatter", 0.01), rate_of("fsdp2-update", 0.001))
    here = cluster(each=2, measured=measured, cores=2)
    expected = 3.0 + 0.5 / 2 + 7 * 0.1 + 4 * 0.01 + 4 * 0.001
    assert point_of(STEP, here, 2, "fsdp2").step_seconds == pytest.approx(expected)


@given(some.integers(1, 2000), some.floats(0, 1e12), some.sampled_from(("all-reduce", "all-gather", "reduce-scatter")))
def test_collectives_take_longer_for_more_bytes(ranks: int, size: float, name: str) -> None:
    here = cluster(Link(bytes_per_second=3e11, latency_seconds=1e-6), nodes=300, between=Link(bytes_per_second=5e10))
    one, more = (collective_seconds(name, it, ranks, here) for it in (size, 2 * size))  # type: ignore[arg-type]
    assert 0 <= one <= more and (ranks > 1 or more == 0)


# -- schedules ------------------------------------------------------------------------------------


def test_the_first_bucket_is_small() -> None:
    gradients = tuple(ReadyGradient(share=(it + 1) / 60, size_bytes=MEBIBYTE) for it in range(60))
    step = MeasuredStep(forward_seconds=1.0, backward_seconds=6.0, optimizer_seconds=0.0, gradients=gradients, units=6)
    assert [it.size_bytes // MEBIBYTE for it in buckets(step)] == [1, 25, 25, 9]
    assert [it.backward_seconds for it in buckets(step)] == pytest.approx([0.1, 2.5, 2.5, 0.9])
    assert [it.size_bytes // MEBIBYTE for it in units(step)] == [10] * 6


def test_free_links_leave_a_step_as_it_is() -> None:
    assert point_of(STEP, cluster(), 8, "ddp").step_seconds == pytest.approx(3.5)
    assert point_of(STEP, cluster(), 8, "zero-1").step_seconds == pytest.approx(3.0 + 0.5 / 8)
    assert point_of(STEP, cluster(), 8, "fsdp2").step_seconds == pytest.approx(3.0 + 0.5 / 8)


def test_the_last_bucket_of_ddp_is_exposed() -> None:
    # Two ranks send every byte once: each bucket takes 0.4 s, all but the last behind the next 0.5 s of backward.
    link = Link(bytes_per_second=26 * MEBIBYTE / 0.4)
    found = point_of(STEP, cluster(link), 2, "ddp")
    assert found.step_seconds == pytest.approx(3.5 + 0.4) and found.exposed_seconds == pytest.approx(0.4)
    assert found.limit == "communication" and found.efficiency == pytest.approx(3.5 / 3.9)


def test_zero_1_sends_the_parameters_at_the_end() -> None:
    link = Link(bytes_per_second=26 * MEBIBYTE / 0.4)
    assert point_of(STEP, cluster(link), 2, "zero-1").step_seconds == pytest.approx(3.0 + 0.4 + 0.25 + 4 * 0.2)


def test_fsdp_gathers_one_part_ahead() -> None:
    # A gather and a scatter of a part take 0.2 s each. Forward: the first gather, then 4 x 0.25 s hide the others.
    # Backward: the last part is kept; gathers and scatters hide behind 0.5 s each, but for the last scatter.
    link = Link(bytes_per_second=26 * MEBIBYTE / 0.4)
    found = point_of(STEP, cluster(link), 2, "fsdp2")
    assert found.step_seconds == pytest.approx(0.2 + 1.0 + 2.0 + 0.2 + 0.25)


def test_zero_1_sends_each_parameter_by_itself() -> None:
    slow = Link(bytes_per_second=1e18, latency_seconds=0.1)
    without, found = (point_of(STEP, cluster(slow), 2, it) for it in ("ddp", "zero-1"))  # type: ignore[arg-type]
    assert found.step_seconds - without.step_seconds == pytest.approx(4 * 0.1 - 0.25)


def test_fsdp_hides_nothing_on_the_processor() -> None:
    link = Link(bytes_per_second=26 * MEBIBYTE / 0.4)
    found = point_of(STEP, cluster(link, cores=8), 2, "fsdp2")
    # Four gathers in forward, three in backward, four scatters.
    assert found.step_seconds == pytest.approx(3.0 + 0.25 + 11 * 0.2)


# -- the curve ------------------------------------------------------------------------------------


def test_counts_double_up_to_all_devices() -> None:
    assert rank_counts(cluster(nodes=6)) == (1, 2, 4, 8, 16, 32, 48)
    assert rank_counts(cluster(each=1, nodes=1)) == (1,)


def test_a_model_that_does_not_fit_is_sharded() -> None:
    here = cluster(device_memory_bytes=500 * MEBIBYTE)
    found = predict(STEP, here, counts=(1, 4))
    assert [it.fits for it in found.points] == [True, True, True, False, True, True]
    assert [(it.ranks, it.strategy) for it in found.changes] == [(4, "zero-1")]
    assert best_points(found)[1].strategy == "zero-1"


def test_processes_that_share_cores_compute_slower() -> None:
    step = MeasuredStep(forward_seconds=1.0, backward_seconds=0.0, optimizer_seconds=0.0, threads=1)
    here = cluster(cores=2)
    assert [point_of(step, here, it, "ddp").step_seconds for it in (1, 2, 4)] == pytest.approx([1.0, 1.0, 2.0])
    assert point_of(step, here, 4, "ddp").limit == "cores"


def test_memory_is_divided_as_the_strategy_says() -> None:
    def mebibytes(strategy: str, ranks: int) -> int:
        return peak_bytes(strategy, STEP, ranks) // MEBIBYTE  # type: ignore[arg-type]

    assert mebibytes("ddp", 1) == mebibytes("fsdp2", 1) == 10 + 104 + 104 + 208
    assert mebibytes("ddp", 4) == 10 + 104 + 2 * 104 + 208
    assert mebibytes("zero-1", 4) == 10 + 104 + 2 * 104 + 52
    assert mebibytes("fsdp2", 4) == 10 + 104 + 3 * 26


def test_the_slowest_of_many_is_the_largest_seen() -> None:
    assert expected_largest([1.0, 2.0], 1) == pytest.approx(1.5)
    assert expected_largest([1.0, 2.0], 2) == pytest.approx(1.75)
    assert expected_largest([1.0, 2.0], 1000) == pytest.approx(2.0)


@given(some.lists(some.floats(1e-3, 10), min_size=2, max_size=30), some.integers(1, 4096))
def test_the_expected_largest_lies_among_the_values(values: list[float], draws: int) -> None:
    found = expected_largest(values, draws)
    assert math.fsum(values) / len(values) - 1e-9 <= found <= max(values) + 1e-9


def test_checkpoints_follow_young_and_daly() -> None:
    hours = 3600.0
    found = checkpoint_interval(60.0, 1000 * hours)
    assert found == pytest.approx(math.sqrt(2 * 60.0 * 1000 * hours), rel=0.01)
    assert checkpoint_interval(100.0, 10.0) == 10.0
    here = cluster(failure_seconds=8000 * hours, checkpoint_seconds=60.0)
    every = point_of(STEP, here, 8, "ddp").checkpoint_every_seconds
    assert every == pytest.approx(found)


def test_costs_are_for_all_devices() -> None:
    assert cost_per_million(1e6 / 3600, 8, 2.0) == pytest.approx(16.0)
    point = point_of(STEP, cluster(price_per_device_hour=2.0), 8, "ddp")
    assert point.cost_per_million_samples == pytest.approx(8 * 2.0 * 1e6 / (8 * 8 / 3.5) / 3600)


def test_only_what_was_compared_counts_as_validated() -> None:
    error = ValidatedError(strategy="ddp", cases=6, mean_error=0.1, largest_error=0.2, most_ranks=4)
    found = {(it.ranks, it.strategy): it.inside_validation for it in predict(STEP, cluster(), errors=[error]).points}
    assert found[4, "ddp"] and not found[8, "ddp"] and not found[4, "fsdp2"]
    elsewhere = predict(STEP, cluster(device="h100"), errors=[error])
    assert not any(it.inside_validation for it in elsewhere.points)


def test_a_small_gain_is_no_reason_to_change() -> None:
    points = predict(STEP, cluster(), counts=(2,), strategies=("ddp", "fsdp2")).points
    nearly = [points[0], msgspec.structs.replace(points[1], step_seconds=0.995 * points[0].step_seconds)]
    assert [it.strategy for it in changes_of(nearly)] == ["ddp"]


@given(some.integers(2, 600), some.floats(1e7, 1e12), some.sampled_from(("ddp", "zero-1", "fsdp2")))
def test_faster_links_never_make_a_step_longer(ranks: int, rate: float, strategy: str) -> None:
    def seconds(factor: float) -> float:
        link = Link(bytes_per_second=factor * rate, latency_seconds=1e-6)
        return point_of(STEP, cluster(link, nodes=75), ranks, strategy).step_seconds  # type: ignore[arg-type]

    assert seconds(2.0) <= seconds(1.0) + 1e-9
