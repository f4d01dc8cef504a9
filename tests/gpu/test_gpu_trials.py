"""Trials on a real device: memory that runs out, arms alive together, the machine, and a plan without any trial."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.records import LaunchRequest, OutOfMemory, Stopped, TurnRequest
from hotlap.trial.guard import own_python_path

pytestmark = pytest.mark.gpu

PLAN = """\
[hotlap]
format = 1

[levers.mixed-precision]
dtype = "bfloat16"

[levers.fused-optimizer]
implementation = "fused"

[levers.matmul-precision]
precision = "high"
"""


def test_memory_that_runs_out_is_an_ending_and_the_next_launch_works(lab) -> None:
    run = lab.executor.launch(LaunchRequest(assignment=lab.assignment("--hog"), steps=60))
    assert isinstance(run.ending, OutOfMemory)
    assert "out of memory" in run.ending.error
    lab.launch()


def test_an_arm_out_of_memory_leaves_a_replicate_without_rounds(lab) -> None:
    arms = (lab.assignment(), lab.assignment("--hog"))
    turns = lab.executor.take_turns(TurnRequest(arms=arms, rounds=3, block_seconds=0.1))
    assert any(isinstance(run.ending, OutOfMemory) for run in turns.runs)
    assert turns.rounds == ((), ())


def test_arms_take_turns_on_one_device(lab, lever) -> None:
    """Each is on the device with what it holds; only one at a time computes."""
    fast, slow = lab.assignment(), lab.assignment("--busy", "0.02")
    turns = lab.executor.take_turns(TurnRequest(arms=(fast, fast, slow), rounds=4, block_seconds=0.1))
    assert [type(run.ending) for run in turns.runs] == [Stopped] * 3
    assert turns.interleaved
    assert [len(row) for row in turns.rounds] == [4, 4, 4]
    assert min(turns.rounds[2]) > 0.015 / 32
    assert max(turns.rounds[0]) < min(turns.rounds[2])
    assert all(run.device_peak_bytes > 0 for run in turns.runs)


def test_the_machine_has_its_device_and_its_rates(lab) -> None:
    import torch

    machine = lab.executor.machine()
    assert machine.accelerators[0].name == torch.cuda.get_device_name(0)
    assert machine.accelerators[0].memory_bytes == pytest.approx(torch.cuda.mem_get_info()[1], rel=0.05)
    rates = dict(machine.ceilings.matmul_flops_per_second)
    assert {"cuda:float32", "cuda:bfloat16", "cuda:tf32", "cpu:float32"} <= set(rates)
    assert rates["cuda:float32"] > rates["cpu:float32"]
    for dtype in ("bfloat16", "tf32"):
        native = dtype in machine.accelerators[0].native_dtypes
        assert native == (torch.cuda.get_device_capability(0) >= (8, 0))
    assert (machine.ceilings.memory_bytes_per_second or 0) > (
        machine.ceilings.host_to_device_pinned_bytes_per_second or 0
    )


def test_the_script_is_seen_to_train_on_the_device(lab) -> None:
    import torch

    run = lab.launch("--pinned")
    assert run.facts.device == "cuda"
    assert run.facts.cudnn_tf32 == (torch.cuda.get_device_capability(0) >= (8, 0))
    assert run.facts.loaders[0].pin_memory
    assert run.facts.models[0].device == "cuda"


@pytest.mark.parametrize("planned", [False, True])
def test_hotlap_run_switches_a_plan_on(tmp_path: Path, planned: bool) -> None:
    (tmp_path / "hotlap.toml").write_text(PLAN if planned else "[hotlap]\nformat = 1\n", encoding="utf-8")
    trainer = str(Path(__file__).with_name("trainer.py"))
    done = subprocess.run(
        [sys.executable, "-m", "hotlap", "run", "--plan", "hotlap.toml", trainer, "--steps", "20"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": own_python_path()},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen, end = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    expected = ("torch.bfloat16", True, "high") if planned else ("torch.float32", False, "highest")
    assert (seen["output"], seen["fused"], seen["precision"]) == expected
    assert len(end["losses"]) == 20
