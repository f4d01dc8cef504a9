"""What gets worse while a script runs: which alarms are raised, and which are not."""

from __future__ import annotations

import random

import pytest
from watched_rows import alarms_of, row, series_from

from hotlap.measure.watch.alarms import Alarms
from hotlap.measure.watch.series import MOST_POINTS, RankSeries, point_of
from hotlap.records import STEP_PHASES

MIB = 2**20


def noisy(seconds: float, of: random.Random) -> float:
    return seconds * of.lognormvariate(0, 0.05)


@pytest.mark.parametrize("seed", range(20))
def test_a_steady_run_raises_nothing(seed: int) -> None:
    of = random.Random(seed)
    rows = [row(it, step=noisy(0.01, of), data_wait=noisy(0.001, of), loss_scale=2.0**16) for it in range(1, 400)]
    memory = [1000 * MIB + of.random() * 50 * MIB for _ in rows]
    alarms = Alarms()
    series = RankSeries()
    for number, it in enumerate(rows):
        series.add(point_of(it, 0.0, host_bytes=int(memory[number]), clock_mhz=2000 + of.random() * 100))
        alarms.check({0: series}, it.at)
    assert alarms.all() == ()


def test_data_wait_that_grows_is_raised_and_withdrawn() -> None:
    waits = [0.001] * 60 + [0.004] * 60 + [0.001] * 60
    alarms, series, seen = Alarms(), RankSeries(), []
    for number, wait in enumerate(waits, start=1):
        series.add(point_of(row(number, data_wait=wait), 0.0))
        alarms.check({0: series}, float(number))
        seen.append(bool(alarms.lasting()))
    assert not any(seen[:60]) and seen[100] and not seen[-1]
    (it,) = alarms.all()
    assert (it.kind, it.lasted) == ("data-wait-grows", False) and "from 1 to 4 ms" in it.text
    assert 60 < it.at_seconds < 85


def test_a_growth_that_costs_little_is_not_raised() -> None:
    waits = [0.0001] * 60 + [0.0004] * 60
    assert not alarms_of(series_from([row(it, data_wait=wait) for it, wait in enumerate(waits, start=1)]))


def test_steps_that_slow_down() -> None:
    rows = [row(it, step=0.010 if it < 60 else 0.012) for it in range(1, 120)]
    (it,) = alarms_of(series_from(rows))
    assert it.kind == "step-slows" and "from 10 to 12 ms" in it.text


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([1000 + it * 0.5 for it in range(240)], True),  # 0.5 MiB per second
        ([1000 + (it % 40) * 8 for it in range(240)], False),  # rises and is freed
        ([1000 + (it % 40) * 8 + it for it in range(240)], True),  # frees less than it takes
        ([1000 + min(it, 30) * 20 for it in range(240)], False),  # what a first epoch allocates
        ([1000 + it * 0.05 for it in range(240)], False),  # too little to matter
    ],
)
def test_memory_that_creeps(levels: list[float], expected: bool) -> None:
    rows = [row(it) for it in range(1, len(levels) + 1)]
    host = alarms_of(series_from(rows, host_bytes=[it * MIB for it in levels]))
    assert [it.kind for it in host] == (["memory-creeps"] if expected else [])
    on_device = [row(it, device_bytes=int(level * MIB)) for it, level in enumerate(levels, start=1)]
    assert [it.kind for it in alarms_of(series_from(on_device))] == (["memory-creeps"] if expected else [])


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        ([2.0**16] * 60 + [2.0 ** (16 - it // 5) for it in range(40)], True),
        ([2.0 ** (16 - it) for it in range(8)] + [2.0**8] * 92, False),  # the normal beginning
        ([2.0**16 if it % 10 < 5 else 2.0**15 for it in range(100)], False),  # falls and recovers
        ([2.0**16] * 60 + [0.5] * 40, True),
    ],
)
def test_a_loss_scale_that_sinks(scales: list[float], expected: bool) -> None:
    found = alarms_of(series_from([row(it, loss_scale=scale) for it, scale in enumerate(scales, start=1)]))
    assert [it.kind for it in found] == (["loss-scale-sinks"] if expected else [])


@pytest.mark.parametrize(
    ("skipped", "expected"),
    [
        ([0] * 60 + [4] * 40, True),
        ([4] * 12 + [0] * 88, False),  # it finds its scale
        ([0] * 95 + [30] * 2 + [0] * 3, False),  # two rows show no course
        ([1 if it % 20 == 0 else 0 for it in range(100)], False),  # one of 2000 steps
    ],
)
def test_steps_that_are_skipped_again_and_again(skipped: list[int], expected: bool) -> None:
    rows = [row(it, loss_scale=1024.0, skipped=count) for it, count in enumerate(skipped, start=1)]
    found = alarms_of(series_from(rows))
    assert [it.kind for it in found] == (["steps-skipped"] if expected else [])
    assert not expected or found[0].text == "4 % of the steps are skipped: their gradients overflow"


def test_a_rank_that_slows() -> None:
    def rank(number: int, own: float) -> RankSeries:
        rows = [row(it, rank=number, step=0.01, backward=0.01 - own - 0.001) for it in range(1, 60)]
        return series_from(rows)

    (it,) = alarms_of(rank(0, 0.003), rank(1, 0.003), rank(2, 0.005))
    assert it.kind == "rank-slows" and it.text.startswith("rank 2 is 2 ms per step slower")
    assert not alarms_of(rank(0, 0.003), rank(1, 0.0032))


def test_a_clock_that_slows_matters_only_with_the_steps() -> None:
    clocks = [2000.0] * 60 + [1500.0] * 60
    slowed = [row(it, step=0.010 if it <= 60 else 0.0108) for it in range(1, 121)]
    (it,) = alarms_of(series_from(slowed, clock_mhz=clocks))
    assert it.kind == "clock-slows" and "from 2000 to 1500 MHz" in it.text
    assert not alarms_of(series_from([row(it) for it in range(1, 121)], clock_mhz=clocks))


def test_a_long_run_stays_bounded_and_loses_no_second() -> None:
    count = 5 * MOST_POINTS + 3
    series = series_from([row(it) for it in range(1, count + 1)])
    points = series.all_points()
    assert len(points) <= MOST_POINTS + 1
    assert sum(it.elapsed for it in points) == count and sum(it.steps for it in points) == 100 * count
    account = series.account(1)
    assert account is not None and account.wall == pytest.approx(0.010)
    assert dict(account.phases)["data_wait"] == pytest.approx(0.001)
    assert sum(seconds for _, seconds in account.phases) == pytest.approx(account.wall)
    assert account.samples_per_step == 32 and [phase for phase, _ in account.phases] == list(STEP_PHASES)
