"""What replicates show besides the speedup: the level of an arm, its energy, its start."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure import levels
from hotlap.records import Block, CompileReport, EnergySource, Replicate, Run, ScriptFacts, Steps

Joules = tuple[float | None, float | None]


def block(joules: Joules = (None, None), samples: int = 10, sampled: bool = False) -> Block:
    device, processors = joules
    return Block(
        steps=5,
        samples=samples,
        wall_seconds=0.1,
        device_energy_joules=device,
        device_power_sampled=sampled,
        processor_energy_joules=processors,
    )


def run(*blocks: Block, device: str = "cpu", startup: float = 3.0, walls: tuple[float, ...] = ()) -> Run:
    """A run whose first block was warm-up."""
    return Run(
        facts=ScriptFacts(device=device),
        blocks=(block((1e6, 1e6)), *blocks),
        warm_up_blocks=1,
        startup_seconds=startup,
        steps=Steps(wall_seconds=walls),
    )


def turns(*runs: Run, rounds: tuple[float, ...] = (0.01, 0.01)) -> Replicate:
    return Replicate(runs=runs, rounds=(rounds,) * len(runs))


def test_the_level_is_a_mean_over_replicates() -> None:
    replicates = [turns(run(block()), rounds=(level, level)) for level in (0.01, 0.02, 0.04)]
    found = levels.seconds_per_sample(replicates, [0], confidence=0.95)
    assert found is not None and found.value == pytest.approx(0.02)
    # Student's 97.5 % quantile with two degrees of freedom is 4.303.
    assert math.log(found.high / found.value) == pytest.approx(4.303 * math.log(2) / math.sqrt(3), rel=1e-3)
    assert found.low * found.high == pytest.approx(found.value**2)


def test_the_level_of_equal_arms_is_the_mean_of_all() -> None:
    rounds = ((0.01, 0.01), (0.04, 0.04), (0.5, 0.5))
    found = levels.seconds_per_sample([Replicate(runs=(run(block()),) * 3, rounds=rounds)] * 2, (0, 1), confidence=0.95)
    assert found is not None and found.value == pytest.approx(0.02)


def test_no_level_without_samples_or_with_one_replicate() -> None:
    whole = turns(run(block()))
    assert levels.seconds_per_sample([whole], [0], confidence=0.95) is None
    assert levels.seconds_per_sample([whole, turns(run(block(samples=0)))], [0], confidence=0.95) is None
    assert levels.seconds_per_sample([turns(Run()), turns(Run())], [0], confidence=0.95) is None


@pytest.mark.parametrize(
    ("device", "sampled", "source", "before"),
    [
        ("cpu", False, "processor-counter", 2.0),
        ("cuda", False, "device-counter", 4.0),
        ("cuda", True, "device-power", 4.0),
    ],
)
def test_energy_is_that_of_what_trains(device: str, sampled: bool, source: EnergySource, before: float) -> None:
    def arm(part: float) -> Run:
        blocks = [block((it * part, it * part / 2), sampled=sampled) for it in (30.0, 50.0)]
        return run(*blocks, device=device)

    found = levels.energy([turns(arm(1.0), arm(1.0), arm(0.25))] * 3, confidence=0.95)
    assert found is not None
    assert (found.source, found.replicates) == (source, 3)
    assert found.baseline_joules_per_sample.value == pytest.approx(before)
    assert found.candidate_joules_per_sample.value == pytest.approx(before / 4)
    assert (found.ratio.low, found.ratio.value, found.ratio.high) == pytest.approx((0.25, 0.25, 0.25))


def test_a_device_that_gives_nothing_is_not_replaced_by_the_processors() -> None:
    arm = run(block((None, 5.0)), device="cuda")
    assert levels.energy([turns(arm, arm, arm)] * 3, confidence=0.95) is None


def test_replicates_without_energy_are_left_out() -> None:
    telling, silent = run(block((None, 5.0))), run(block())
    one, none = turns(telling, telling, telling), turns(telling, telling, silent)
    found = levels.energy([one, none, one], confidence=0.95)
    assert found is not None and found.replicates == 2
    assert levels.energy([one, none], confidence=0.95) is None


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=2, max_size=8))
def test_the_ratio_of_energies_is_that_of_their_levels(pairs: list[tuple[float, float]]) -> None:
    replicates = [
        turns(run(block((None, one))), run(block((None, one))), run(block((None, other)))) for one, other in pairs
    ]
    found = levels.energy(replicates, confidence=0.9)
    assert found is not None
    levels_ratio = found.candidate_joules_per_sample.value / found.baseline_joules_per_sample.value
    assert found.ratio.value == pytest.approx(levels_ratio)
    assert found.ratio.low <= found.ratio.value * (1 + 1e-9) and found.ratio.value <= found.ratio.high * (1 + 1e-9)


def test_a_start_ends_when_steps_are_as_fast_as_they_stay() -> None:
    """The first step is in the start's seconds; the warm-up's block of five is led in with one step more."""
    slow_warm_up = (9.0, 2.0, 1.1, 0.1, 0.1, 0.1, 0.1) + (0.1,) * 10
    assert levels.startup_seconds(run(startup=12.0, walls=slow_warm_up)) == pytest.approx(12.0 + 1.9 + 1.0)
    assert levels.startup_seconds(run(startup=12.0, walls=slow_warm_up[:9])) is None
    assert levels.startup_seconds(run(startup=0.0, walls=slow_warm_up)) is None


def test_extra_startup_is_compared_by_replicate() -> None:
    walls = (1.0,) + (0.1,) * 16
    plain, compiled = (lambda seconds: run(startup=seconds, walls=walls),) * 2
    replicates = [turns(plain(3.0 + it), plain(3.0), compiled(33.0 + it)) for it in range(3)]
    found = levels.extra_startup_seconds(replicates, confidence=0.95)
    assert found is not None and (found.low, found.value, found.high) == pytest.approx((30.0, 30.0, 30.0))
    assert levels.extra_startup_seconds(replicates[:1], confidence=0.95) is None


def test_extra_startup_is_that_of_a_first_run() -> None:
    """Replicates whose arms load what was compiled before say how much it varies, and no more."""
    walls = (1.0,) + (0.1,) * 16

    def replicate(extra: float, loaded: int) -> Replicate:
        start = msgspec.structs.replace(run(startup=3.0 + extra, walls=walls), compile=CompileReport(loaded=loaded))
        return turns(run(startup=3.0, walls=walls), run(startup=3.0, walls=walls), start)

    later = [replicate(extra, loaded=2) for extra in (2.0, 3.0, 4.0)]
    found = levels.extra_startup_seconds([replicate(33.0, loaded=0), *later], confidence=0.95)
    spread = levels.extra_startup_seconds([replicate(it, loaded=0) for it in (2.0, 3.0, 4.0)], confidence=0.95)
    assert found is not None and spread is not None
    assert found.value == pytest.approx(33.0)
    assert found.high - found.low == pytest.approx(math.sqrt(3) * (spread.high - spread.low))
    assert levels.extra_startup_seconds(later, confidence=0.95) is None, "what a first run takes is not known"
