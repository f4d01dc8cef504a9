"""An observing launch of several processes: all of them end at the same step, whatever each knows of its epoch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hotlap.records import Assignment, LaunchRequest, Observe, Stopped, Workload
from hotlap.trial.local import LocalExecutor

SCRIPT = """
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

distributed.init_process_group("gloo")
size = 160 if distributed.get_rank() == 0 else 1_000_000  # the end is near on one rank only
data = TensorDataset(torch.randn(size, 8), torch.randn(size, 1))
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(1000):
    for inputs, targets in DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_ranks_do_not_wait_for_the_end_of_their_own_epoch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    workload = Workload(
        kind="module",
        target="torch.distributed.run",
        arguments=("--standalone", "--nproc-per-node=2", "train.py"),
        directory=str(tmp_path),
        python=sys.executable,
    )
    assignment = Assignment(workload=workload, instruments=(Observe(epoch_end_seconds=10.0),), block_limit_seconds=60.0)
    run = LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=assignment, steps=12))
    assert isinstance(run.ending, Stopped), run.ending
    assert len(run.steps.wall_seconds) == 12
