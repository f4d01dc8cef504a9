"""Evidence is collected, counted over the right steps, and does not change the script's results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hotlap.evidence import RunEvidence
from hotlap.records import Assignment, CollectEvidence, Crashed, LaunchRequest, Stopped, Workload
from hotlap.traces import analyse, read_trace
from hotlap.trial.local import LocalExecutor

LOOP = """
for inputs, targets in DataLoader(data, batch_size=32, shuffle=True):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
"""


def test_losses_are_those_of_a_launch_without_evidence(launch) -> None:  # type: ignore[no-untyped-def]
    watched, evidence = launch(LOOP, steps=20, profiled_steps=4)
    plain, nothing = launch(LOOP, steps=20, instruments=())
    assert isinstance(watched.ending, Stopped) and isinstance(plain.ending, Stopped)
    assert None not in plain.steps.loss
    assert watched.steps.loss == plain.steps.loss
    assert watched.facts.loaders[0].dataset == plain.facts.loaders[0].dataset
    assert plain.evidence_path == "" and nothing.observed_steps == 0
    # All but the first step and those under the profiler.
    assert evidence.observed_steps == 20 - 1 - 4
    assert evidence.observed_seconds == pytest.approx(sum(watched.steps.wall_seconds[1:16]))


@pytest.mark.slow
def test_a_script_that_ends_by_itself_has_evidence_too(launch) -> None:  # type: ignore[no-untyped-def]
    run, evidence = launch(LOOP, steps=1000, profiled_steps=4)
    assert evidence.observed_steps == 124
    assert evidence.window is None
    assert len(run.steps.wall_seconds) == 125
    assert evidence.loaders[0].dataset == "TensorDataset"


@pytest.mark.slow
def test_a_launch_of_one_step_observes_nothing(launch) -> None:  # type: ignore[no-untyped-def]
    run, evidence = launch(LOOP, steps=1, profiled_steps=4)
    assert isinstance(run.ending, Stopped)
    assert evidence.observed_steps == 0 and evidence.window is None


def test_a_script_that_fails_reports_its_own_error(launch) -> None:  # type: ignore[no-untyped-def]
    script = LOOP + "    losses.append(loss.item())\n    if len(losses) == 9: raise OSError('mine')\n"
    run, _ = launch("losses = []\n" + script, steps=40)
    assert isinstance(run.ending, Crashed)
    assert run.ending.error == "OSError: mine"


def test_other_launches_do_not_import_any_of_it() -> None:
    code = (
        "import sys, torch; from hotlap.runtime import boot, session; "
        "assert not [it for it in sys.modules if it.startswith('hotlap.runtime.evidence')]"
    )
    source = str(Path(__file__).parents[3] / "src")
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": source, "PATH": ""})


@pytest.mark.slow
def test_processes_that_train_together_write_files_of_their_own(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "workloads" / "torchrun_ddp.py"
    workload = Workload(
        kind="module",
        target="torch.distributed.run",
        arguments=("--standalone", "--nproc-per-node=2", str(script)),
        directory=str(tmp_path),
        python=sys.executable,
    )
    assignment = Assignment(
        workload=workload, instruments=(CollectEvidence(profiled_steps=3),), startup_limit_seconds=120.0
    )
    executor = LocalExecutor(tmp_path / "runs", environment={"OMP_NUM_THREADS": "1"})
    run = executor.launch(LaunchRequest(assignment=assignment, steps=12))
    assert [Path(it).name for it in run.rank_evidence_paths] == ["evidence.json", "evidence-1.json"]
    for rank, path in enumerate(run.rank_evidence_paths):
        evidence = msgspec.json.decode(Path(path).read_bytes(), type=RunEvidence)
        assert (evidence.rank, evidence.observed_steps) == (rank, 8)
        assert evidence.window is not None and evidence.window.first_step == 9
        assert len(analyse(read_trace(evidence.window.trace_path)).steps) == 3
