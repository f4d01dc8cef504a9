"""Scripts that end in unusual ways in the middle of training are reported correctly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hotlap.errors import ScriptError
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.observe import first_run, interpret
from hotlap.experiment.options import Options
from hotlap.experiment.trials import Trials
from hotlap.procedures.numbers_hunt import HuntOptions, hunt
from hotlap.records import Completed, Run, Workload
from hotlap.trial.local import LocalExecutor

pytestmark = pytest.mark.slow

SCRIPT = """
import os, signal, sys, time
import torch

STEPS = 60
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(STEPS):
    if step == 30:
        {middle}
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    print("step", step + 1, flush=True)
{end}
"""

AFTER = "failed after 30 training steps"
MISDEEDS = {
    "os._exit(3)": (AFTER, "exit code 3. Its last line was: step 30"),
    "from posix import _exit; _exit(0)": (AFTER, "called os._exit, or was replaced by another program, without"),
    "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])": (AFTER, "or was replaced by another program, without a report"),
    "os.execv('/bin/sh', ['sh', '-c', 'exit 4'])": (AFTER, "exit code 4"),
    "os.closerange(3, 4096)": ("training steps", "closed hotlap's connection"),
    "os.kill(os.getpid(), signal.SIGSEGV)": (AFTER, "SIGSEGV"),
    "os.kill(os.getpid(), signal.SIGBUS)": (AFTER, "SIGBUS"),
    "os.kill(os.getpid(), signal.SIGILL)": (AFTER, "SIGILL"),
    "os.kill(os.getpid(), signal.SIGTERM)": (AFTER, "SIGTERM"),
    "os.kill(os.getpid(), signal.SIGKILL)": (AFTER, "killed from outside (SIGKILL)"),
    "raise SystemExit('no more data')": (AFTER, "Its last line was: no more data"),
    "raise ValueError('planted')": (AFTER, "ValueError: planted"),
    "os.kill(os.getpid(), signal.SIGSTOP)": ("hung after 30 training steps", "while stopped by a signal"),
    "time.sleep(1000)": ("hung after 30 training steps", "It made no progress for 2 s during block."),
}  # fmt: skip


def workload_of(tmp_path: Path, middle: str = "pass", end: str = "") -> Workload:
    (tmp_path / "train.py").write_text(SCRIPT.format(middle=middle, end=end))
    return Workload(kind="script", target="train.py", directory=str(tmp_path), python=sys.executable)


def observe(workload: Workload, place: Path) -> Run:
    options = Options(block_limit_seconds=2.0)
    trials = Trials(workload, options, JournaledExecutor(LocalExecutor(place / "runs")))
    run = first_run(trials)
    interpret(run, trials)
    return run


@pytest.mark.parametrize("middle", MISDEEDS)
def test_the_search_reports_how_the_script_ended(middle: str, tmp_path: Path) -> None:
    with pytest.raises(ScriptError) as caught:
        observe(workload_of(tmp_path, middle), tmp_path)
    assert all(it in caught.value.what for it in MISDEEDS[middle]), caught.value.what
    assert caught.value.exit_code != 0


@pytest.mark.parametrize("middle", ["from posix import _exit; _exit(0)", "time.sleep(1000)"])
def test_the_search_for_a_nan_reports_how_the_script_ended(middle: str, tmp_path: Path) -> None:
    options = HuntOptions(block_limit_seconds=2.0)
    with pytest.raises(ScriptError) as caught:
        hunt(workload_of(tmp_path, middle), options, LocalExecutor(tmp_path / "runs"))
    assert all(it in caught.value.what for it in MISDEEDS[middle]), caught.value.what
    assert caught.value.exit_code != 0


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.stdout.flush(); os._exit(0)", "sys.exit(0)", "sys.exit()"])
def test_exits_that_skip_teardown_count_as_completed(end: str, tmp_path: Path) -> None:
    run = observe(workload_of(tmp_path, end=end), tmp_path)
    assert run.ending == Completed()
    assert len(run.steps.wall_seconds) == 60


def test_a_script_that_daemonizes_is_ended(tmp_path: Path) -> None:
    workload = workload_of(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(f"import os\nos.fork() and os._exit(0)\n{path.read_text()}")
    with pytest.raises(ScriptError, match="in the background, where hotlap ended it"):
        observe(workload, tmp_path)


def test_a_script_that_trains_in_a_forked_process(tmp_path: Path) -> None:
    """Train in a multiprocessing child, which ends by os._exit and runs no exit handlers."""
    workload = workload_of(tmp_path)
    path = tmp_path / "train.py"
    body = "\n".join(f"    {line}" for line in path.read_text().splitlines())
    main = "import multiprocessing\nprocess = multiprocessing.get_context('fork').Process(target=train)"
    path.write_text(f"def train():\n{body}\n{main}\nprocess.start()\nprocess.join()\nassert process.exitcode == 0\n")
    run = observe(workload, tmp_path)
    assert run.ending == Completed()
    assert len(run.steps.wall_seconds) == 60
