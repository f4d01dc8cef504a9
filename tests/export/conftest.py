"""A study with what its journal keeps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import fakes
import msgspec

from hotlap.export.gather import Gathered
from hotlap.plan import EMPTY
from hotlap.records import Block, LossCurves, Plan, Replicate, Run, Steps


def run_of(plan: Plan = EMPTY, *, step_seconds: float = 0.2) -> Run:
    """Three steps, the loss of the second of which was not finite, in a block of warm-up and one that counts."""
    return Run(
        plan=plan,
        steps=Steps(
            wall_seconds=(3 * step_seconds, step_seconds, step_seconds),
            phases=(
                ("data_wait", (step_seconds / 2,) * 3),
                ("forward", (step_seconds / 4,) * 3),
                ("backward", (step_seconds / 4,) * 3),
            ),
            samples=(32, 32, 16),
            loss=(1.5, None, 0.75),
            not_finite=(1,),
        ),
        blocks=(
            Block(steps=1, samples=32, wall_seconds=3 * step_seconds),
            Block(steps=2, samples=48, wall_seconds=2 * step_seconds, throttled="heat", device_energy_joules=7.5),
        ),
        warm_up_blocks=1,
    )


@pytest.fixture
def gathered() -> Gathered:
    plan = fakes.FINISHED.plan
    losses = LossCurves(
        compared_steps=2, steps=(1, 2), baseline=(1.0, 0.5), plan=(1.0, 0.51), baseline_average=(1.0, 0.95),
        plan_average=(1.0, 0.951),
    )  # fmt: skip
    baseline, planned = run_of(), run_of(plan, step_seconds=0.05)
    turns = Replicate(runs=(baseline, baseline, planned), rounds=((0.1,), (0.1,), (0.03,)))
    study = msgspec.structs.replace(fakes.FINISHED, losses=losses)
    return Gathered(study=study, replicates=(turns,), baseline=baseline, planned=planned)
