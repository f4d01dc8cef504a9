"""A real trial of a script that connects to other machines and sends a tracker online."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hotlap.records import Assignment, LaunchRequest, Workload
from hotlap.trial.local import LocalExecutor

TRACKER = """
class Run:
    def __init__(self, mode): self.mode = mode
    def log(self, values): assert self.mode == "disabled"

def init(project=None, mode=None): return Run(mode)
"""
SCRIPT = """
import socket
import torch
import wandb
from torch.utils.data import DataLoader, Dataset


def connect(address):
    with socket.socket() as made:
        made.setblocking(False)
        try:
            made.connect((address, 443))
        except OSError:
            pass


class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        connect("192.0.2.2")
        return torch.randn(4), torch.randn(1)


if __name__ == "__main__":
    connect("192.0.2.1")
    run = wandb.init(project="p", mode="online")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100):
        for inputs, targets in DataLoader(Numbers(), batch_size=8, num_workers=1, multiprocessing_context="spawn"):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            run.log({"loss": loss.item()})
"""


@pytest.mark.slow
def test_a_run_names_its_hosts_and_the_silenced_tracker(tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text(TRACKER)
    (tmp_path / "train.py").write_text(SCRIPT)
    workload = Workload(kind="script", target="train.py", directory=str(tmp_path), python=sys.executable)
    run = LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=Assignment(workload=workload), steps=4))
    assert set(run.hosts) == {"192.0.2.1:443", "192.0.2.2:443"}, run
    assert run.notes == ("wandb was asked to go online by the script; it is disabled in trials.",)
