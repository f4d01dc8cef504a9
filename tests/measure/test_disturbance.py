"""When a measurement counts as disturbed: other processes used the cores and slowed it down."""

from __future__ import annotations

import pytest

from hotlap.measure.disturbance import disturbance, disturbance_of_rates, disturbance_text
from hotlap.records import Block, Ceilings, Disturbance, Machine, Run


def run(*loads: float, own: float = 1.0, waited: float | None = None, warm_up: int = 0) -> Run:
    """Blocks of two seconds; ``own`` and the loads are cores, ``waited`` is seconds of waiting in each."""
    blocks = tuple(
        Block(steps=8, samples=8, wall_seconds=2.0, own_cpu_seconds=2.0 * own, other_load=load, waited_seconds=waited)
        for load in loads
    )
    return Run(blocks=blocks, warm_up_blocks=warm_up)


@pytest.mark.parametrize(
    ("found", "cores"),
    [
        (run(0.96), 2),  # no core is idle
        (run(1.8, own=0.1), 2),  # the script hardly gets on
        (run(0.3, own=1.0, waited=0.5), 2),  # a core was idle on average, yet threads waited
        (run(0.3, own=0.7), 1),
        (run(9.0, own=60.0), 64),
    ],
)
def test_others_that_get_in_the_way(found: Run, cores: int) -> None:
    assert disturbance("account", [found], cores) is not None


@pytest.mark.parametrize(
    ("found", "cores"),
    [
        (Run(), 2),  # nothing is known, as in old studies
        (run(0.1, own=1.9, waited=3.0), 2),  # more threads than cores: its own doing
        (run(8.0, own=16.0), 64),  # there are cores enough for both
        (run(1.0, own=0.1), 2),  # waits for storage, and the other core is free
        (run(0.3, own=1.0, waited=0.02), 2),
        (run(2.0, 0.0, warm_up=1), 2),  # over before it counted
    ],
)
def test_others_that_do_not(found: Run, cores: int) -> None:
    assert disturbance("account", [found], cores) is None


def test_loads_are_averaged_over_all_blocks() -> None:
    found = disturbance("speed", [run(0.5, 1.5, waited=1.0), run(1.0, waited=1.0)], 2)
    assert found.waited_share == pytest.approx(1 / 3)
    assert found == Disturbance(measured="speed", other_load=1.0, cores=2, waited_share=found.waited_share)
    assert found.words == "others used 1.0 of 2 cores"


def test_a_system_that_does_not_report_waiting() -> None:
    found = disturbance("speed", [run(1.5), run(1.5, waited=1.0)], 2)
    assert found is not None and found.waited_share is None


def test_rates_of_the_machine() -> None:
    assert disturbance_of_rates(Machine(cores=2, ceilings=Ceilings(other_load=0.1))) is None
    assert disturbance_of_rates(Machine(cores=64, ceilings=Ceilings(other_load=3.0))) is None
    assert disturbance_of_rates(Machine(cores=2, ceilings=Ceilings(other_load=0.5))) is not None


def test_one_warning_for_all() -> None:
    one = Disturbance(measured="account", other_load=1.3, cores=2, waited_share=0.4)
    assert disturbance_text([one]) == (
        "The machine was busy while hotlap measured the time of a step: others used 1.3 of 2 cores. Ready threads "
        "waited 40 % of their time for a core. Other processes may have affected these figures; stop other "
        "programs and measure again."
    )
    more = Disturbance(measured="profile", other_load=0.6, cores=2)
    text = disturbance_text([more, one])
    assert "the profiled steps and the time of a step: others used up to 1.3 of 2 cores" in text
