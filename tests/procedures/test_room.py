"""How many arms are alive together, by the memory of the script."""

from __future__ import annotations

import msgspec
import pytest
from fake_script import WORKLOAD, FakeExecutor, FakeScript

from hotlap.experiment.costs import FEWEST_ROUNDS, Shape
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.trials import Trials
from hotlap.records import Accelerator, Machine, Run, ScriptFacts

GIB = 1 << 30


def trials_for(machine: Machine, run: Run) -> Trials:
    executor = FakeExecutor(FakeScript())
    trials = Trials(WORKLOAD, Options(), JournaledExecutor(executor, clock=executor.clock))
    trials.costs.shape = Shape(step_seconds=0.1, block_turns=4)
    trials.fit_arms(machine, run)
    return trials


def fitted(machine: Machine, run: Run) -> tuple[int, bool]:
    trials = trials_for(machine, run)
    assert not trials.suspended
    return trials.arms_at_once, trials.interleaved


def device(memory_gib: float, used_gib: float = 0.0) -> Machine:
    one = Accelerator(kind="cuda", name="A", memory_bytes=int(memory_gib * GIB), used_bytes=int(used_gib * GIB))
    return Machine(memory_bytes=256 * GIB, accelerators=(one,))


def on_device(peak_gib: float, footprint_gib: float = 0.0) -> Run:
    return Run(device_peak_bytes=int(peak_gib * GIB), device_footprint_bytes=int(footprint_gib * GIB))


@pytest.mark.parametrize(
    ("machine", "run", "arms", "interleaved"),
    [
        (device(80), on_device(1), 6, True),
        (device(80), on_device(10), 6, True),
        (device(80), on_device(20), 3, True),
        (device(80), on_device(22), 2, False),
        # The allocator's reserve and the context count, not only what tensors held.
        (device(80), on_device(10, footprint_gib=22), 2, False),
        (device(1), on_device(0.05, footprint_gib=0.5), 2, False),
        # Half of the device is another program's, whose memory is part of the footprint too.
        (device(80, used_gib=40), on_device(10, footprint_gib=52), 2, False),
        (device(80, used_gib=40), on_device(8, footprint_gib=50), 3, True),
        (Machine(memory_bytes=10 * GIB), Run(host_peak_bytes=3 * GIB), 2, False),
        (Machine(memory_bytes=10 * GIB), Run(host_peak_bytes=2 * GIB), 4, True),
        (Machine(), on_device(10), 6, True),
    ],
)
def test_arms_that_fit_together(machine: Machine, run: Run, arms: int, interleaved: bool) -> None:
    assert fitted(machine, run) == (arms, interleaved)


def test_the_device_with_the_least_room_counts() -> None:
    small = Accelerator(kind="cuda", name="B", memory_bytes=40 * GIB, used_bytes=20 * GIB)
    machine = Machine(memory_bytes=256 * GIB, accelerators=(*device(30).accelerators, small))
    assert fitted(machine, on_device(6)) == (2, False)


@pytest.mark.parametrize(
    ("machine_gib", "run", "arms", "suspended"),
    [
        (256, on_device(20), 3, False),
        (256, on_device(22), 6, True),
        (256, on_device(60), 3, True),
        # In main memory there must be room for what leaves the device.
        (100, on_device(60), 2, False),
        (256, msgspec.structs.replace(on_device(40), host_peak_bytes=20 * GIB), 3, True),
        # Memory that processes share stays on the device.
        (256, msgspec.structs.replace(on_device(60), facts=ScriptFacts(processes=2)), 2, False),
    ],
)
def test_arms_leave_a_device_that_has_no_room_for_three(machine_gib: int, run: Run, arms: int, suspended: bool) -> None:
    machine = msgspec.structs.replace(device(80), memory_bytes=machine_gib * GIB, suspends_devices=True)
    trials = trials_for(machine, run)
    assert (trials.arms_at_once, trials.suspended) == (arms, suspended)
    assert trials.costs.shape.block_turns == (1 if suspended else 4), "moving memory takes seconds"
    assert trials.interleaved == (arms >= 3)
    assert (trials.rounds == FEWEST_ROUNDS) == suspended
    trials.choose_rounds(1)
    assert (trials.rounds == FEWEST_ROUNDS) == suspended
