"""The energy of blocks on a real device."""

from __future__ import annotations

import pytest

from hotlap.machine.accelerators import accelerators
from hotlap.measure import levels
from hotlap.records import TurnRequest

pytestmark = pytest.mark.gpu


def test_blocks_report_a_plausible_energy(lab) -> None:
    limit_watts = accelerators()[0].power_limit_watts
    turns = lab.executor.take_turns(TurnRequest(arms=(lab.assignment(),) * 2, rounds=6, block_seconds=0.5))
    for run in turns.runs:
        for block in run.blocks[run.warm_up_blocks :]:
            assert block.device_energy_joules is not None
            watts = block.device_energy_joules / block.wall_seconds
            assert 5 < watts < 1.5 * (limit_watts or 1500)


def test_a_busier_arm_takes_more_energy_for_a_sample(lab) -> None:
    """Kernels on top of the same computation take energy of their own."""
    fast, slow = lab.assignment(), lab.assignment("--busy", "0.02")
    replicates = [
        lab.executor.take_turns(TurnRequest(arms=(fast, fast, slow), rounds=4, block_seconds=0.5, order_seed=seed))
        for seed in range(3)
    ]
    found = levels.energy(replicates, confidence=0.95)
    assert found is not None and found.source in ("device-counter", "device-power")
    assert found.ratio.value > 1
    assert levels.energy(replicates, confidence=0.95, arms=(0, 1)).ratio.value == pytest.approx(1, abs=0.3)
