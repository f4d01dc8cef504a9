"""Tests for real hardware, on a simulated device: `make test-device` runs all of them, the gate these."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from simulated.environment import SimulatedDevice

FOLDER = Path(__file__).resolve().parents[1] / "gpu"

IN_THE_GATE = (
    "test_gpu_clock.py::test_phases_add_up_to_the_step_and_steps_to_the_block",
    "test_gpu_clock.py::test_nothing_waits_for_the_device_within_a_block",
    "test_gpu_evidence.py",
    "test_gpu_levers.py::test_training_still_computes_the_same[mixed-precision-float16-mlp]",
    "test_gpu_switching.py::test_each_configuration_has_every_round_and_its_own_peak[mlp]",
    "test_gpu_trials.py::test_memory_that_runs_out_is_an_ending_and_the_next_launch_works",
    "test_gpu_trials.py::test_hotlap_run_switches_a_plan_on[True]",
)


def test_they_pass(device: Callable[..., SimulatedDevice]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *(str(FOLDER / it) for it in IN_THE_GATE)],
        env={**os.environ, **device().variables},
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
