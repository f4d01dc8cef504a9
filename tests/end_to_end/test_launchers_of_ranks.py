"""Scripts of two processes that other launchers than torchrun start, as users type them: every rank is measured, and no
process is left. DeepSpeed's is skipped where it is not installed."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from hotlap.cli.workload import workload_from
from hotlap.records import Assignment, LaunchRequest, Stopped
from hotlap.trial.local import LocalExecutor

pytestmark = pytest.mark.slow

TRAINING = """
torch.set_num_threads(1)
torch.manual_seed(rank)
values, labels = torch.randn(16, 32), torch.randint(0, 4, (16,))
for _ in range(10**6):
    optimizer.zero_grad()
    back(torch.nn.functional.cross_entropy(model(values), labels))
    optimizer.step()
"""
ACCELERATE = """
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(32, 4)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
rank, back = accelerator.process_index, accelerator.backward
"""
FABRIC = """
import torch
from lightning.fabric import Fabric

fabric = Fabric()
model = torch.nn.Linear(32, 4)
model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))
rank, back = fabric.global_rank, fabric.backward
"""
DEEPSPEED = """
import deepspeed
import torch

made = torch.nn.Linear(32, 4)
config = {"train_micro_batch_size_per_gpu": 16, "zero_optimization": {"stage": 1}}
model, *_ = deepspeed.initialize(model=made, optimizer=torch.optim.AdamW(made.parameters()), config=config)
rank, back = torch.distributed.get_rank(), model.backward
model.zero_grad, optimizer = (lambda: None), model
"""


@pytest.mark.parametrize(
    ("package", "command", "script"),
    [
        # The script says that it computes on the processor; accelerate's --cpu would start one process, or MPI.
        ("accelerate", "accelerate launch --multi_gpu --num_processes 2", ACCELERATE),
        ("lightning", "fabric run --accelerator cpu --strategy ddp --devices 2", FABRIC),
        ("deepspeed", "deepspeed --num_gpus 2", DEEPSPEED),
    ],
    ids=["accelerate", "fabric", "deepspeed"],
)
def test_every_rank_of_a_launcher_is_measured(
    package: str, command: str, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package, exc_type=ImportError)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    file = work / "train.py"
    file.write_text(script + TRAINING, encoding="utf-8")
    workload = workload_from([*command.split(), str(file)], "tune")
    environment = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "ACCELERATE_USE_CPU": "true"}
    assignment = Assignment(workload=workload, block_limit_seconds=120.0)
    executor = LocalExecutor(tmp_path / "study", environment=environment)
    run = executor.launch(LaunchRequest(assignment=assignment, steps=12))
    assert isinstance(run.ending, Stopped), run.ending
    assert [len(it) for it in run.rank_step_seconds] == [12, 12]
    assert run.facts.processes == 2
    assert not [it for it in psutil.process_iter(["cmdline"]) if str(file) in (it.info["cmdline"] or [])]
