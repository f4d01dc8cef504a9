"""The time account and the remarks on disturbances."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.account import account
from hotlap.measure.disturbance import disturbances
from hotlap.records import STEP_PHASES, Block, PhaseAccount, Run, ScriptFacts, Steps

seconds = st.floats(0, 100)


def steps(rows: list[tuple[float, float, float, float, float, float]]) -> Steps:
    columns = list(zip(*rows, strict=True))
    return Steps(
        wall_seconds=tuple(math.fsum(row) for row in rows),
        phases=(
            ("data_wait", columns[0]),
            ("host_to_device", columns[1]),
            ("forward", columns[2]),
            ("backward", columns[3]),
            ("optimizer", columns[4]),
            ("other", columns[5]),
        ),
        outside_seconds=tuple(5.0 for _ in rows),
        samples=tuple(32 for _ in rows),
    )


def phases(it: PhaseAccount) -> float:
    return math.fsum(map(it.seconds_in, STEP_PHASES))


@given(st.lists(st.tuples(seconds, seconds, seconds, seconds, seconds, seconds), min_size=1, max_size=20), st.data())
def test_phases_add_up_to_the_wall(rows: list[tuple[float, ...]], data: st.DataObject) -> None:
    skip = data.draw(st.integers(0, len(rows) - 1))
    got = account(steps(rows), skip=skip)  # type: ignore[arg-type]
    assert phases(got) == pytest.approx(got.wall, rel=1e-9, abs=1e-12)
    assert got.wall == pytest.approx(math.fsum(map(math.fsum, rows[skip:])) / (len(rows) - skip), abs=1e-12)
    assert got.outside == 5.0
    assert got.samples_per_step == 32


def test_the_warm_up_is_left_out() -> None:
    got = account(steps([(9.0, 0, 0, 0, 0, 0), (1.0, 0, 2.0, 0, 0, 0), (3.0, 0, 2.0, 0, 0, 0)]), skip=1)
    assert (got.seconds_in("data_wait"), got.seconds_in("forward"), got.wall) == (2.0, 2.0, 4.0)


def test_an_unobserved_phase_counts_as_other() -> None:
    got = account(Steps(wall_seconds=(1.0, 1.0), phases=(("forward", (0.25, 0.25)),)), skip=0)
    assert (got.seconds_in("forward"), got.seconds_in("other"), got.samples_per_step) == (0.25, 0.75, 1.0)


@pytest.mark.parametrize(
    ("given_steps", "skip", "words"),
    [
        (Steps(), 0, "0 steps"),
        (Steps(wall_seconds=(1.0,)), 1, "Cannot skip 1 of 1"),
        (Steps(wall_seconds=(1.0,)), -1, "Cannot skip -1 of 1"),
        (Steps(wall_seconds=(1.0, 1.0), phases=(("forward", (1.0,)),)), 0, "forward has 1 rows"),
        (Steps(wall_seconds=(1.0,), phases=(("forward", (2.0,)),)), 0, "add up to 2 s"),
        (
            Steps(
                wall_seconds=(1.0,),
                phases=(
                    ("forward", (0.2,)),
                    ("other", (0.2,)),
                ),
            ),
            0,
            "add up to 0.4 s",
        ),
    ],
)
def test_an_account_that_does_not_add_up_is_refused(given_steps: Steps, skip: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        account(given_steps, skip=skip)


def block(**changes: object) -> Block:
    return Block(steps=8, samples=64, wall_seconds=0.3, **changes)  # type: ignore[arg-type]


def test_a_quiet_machine_needs_no_remark() -> None:
    assert disturbances([]) == ()
    assert disturbances([Run(blocks=(block(other_load=0.01, device_clock_mhz=1980.0),))]) == ()


def test_what_disturbed_the_machine_is_named() -> None:
    runs = [
        Run(blocks=(block(other_load=1.0), block(other_load=0.2, device_clock_mhz=1000.0)), warm_up_blocks=1),
        Run(blocks=(block(other_load=0.4, device_clock_mhz=1980.0, throttled="thermal"),)),
    ]
    load, throttling, clock = disturbances(runs)
    assert "0.3 cores" in load
    assert "0.4 at most" in load
    assert "1 of 2 blocks (thermal)" in throttling
    assert "1000 and 1980 MHz" in clock


def test_how_long_processes_that_train_together_stood_still() -> None:
    together, alone = ScriptFacts(processes=2), ScriptFacts()
    runs = [
        Run(blocks=(block(),), facts=together, longest_pause_seconds=41.3),
        Run(blocks=(block(),), facts=together, longest_pause_seconds=12.0),
    ]
    assert disturbances(runs) == (
        "Its processes were frozen for up to 41 s at a time while other arms had their turns.",
    )
    assert disturbances([msgspec.structs.replace(runs[0], facts=alone)]) == ()
    assert disturbances([msgspec.structs.replace(runs[0], longest_pause_seconds=0.4)]) == ()
