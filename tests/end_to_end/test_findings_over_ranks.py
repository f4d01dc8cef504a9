"""Findings over ranks, planted in scripts of two real gloo ranks: each is found, and names what it should.

A straggler with its line is among the planted causes (`tests/causes/straggler.py`, `rank_zero_report`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hotlap.experiment.options import Options
from hotlap.procedures.profile import profile
from hotlap.records import Finding, Workload
from hotlap.trial.local import LocalExecutor

pytestmark = pytest.mark.slow

HEAD = """
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(rank)


def network(width, layers=4):
    hidden = [it for _ in range(layers) for it in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, 10))


def train(model, batches, after=lambda step: None, scale=1.0):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        (scale * nn.functional.cross_entropy(model(x), y)).backward()
        optimizer.step()
        after(step)


def forever(samples, width):
    x, y = torch.randn(samples, width), torch.randint(0, 10, (samples,))
    while True:
        yield x, y
"""
EXPOSED = "train(DistributedDataParallel(network(768), bucket_cap_mb=5), forever(16, 768))"
UNEQUAL = """
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(100_000, 64), torch.randint(0, 10, (100_000,)))
train(DistributedDataParallel(network(64)), DataLoader(data, batch_size=64 if rank == 0 else 128))
"""
DISAGREEING = """
# The loss of one rank is scaled.
train(DistributedDataParallel(network(64)), forever(64, 64), scale=1.0 + rank)
"""
BYPASSED = """
model = network(64)
wrapper = DistributedDataParallel(model)
train(model, forever(64, 64))
"""
APART = """
# One rank alone changes a weight.
model = DistributedDataParallel(network(64))


def decay(step):
    if rank == 1:
        with torch.no_grad():
            model.module[0].weight.mul_(0.999)


train(model, forever(64, 64), decay)
"""
CHECKPOINTS = """
import os
model = DistributedDataParallel(network(512))


def save(step):
    if rank == 0 and step % 10 == 9:
        torch.save(model.module.state_dict(), "checkpoint.pt")


train(model, forever(32, 512), save)
"""
SLOW_LINK = """
import os
import socket
SO_MAX_PACING_RATE = 47  # Linux: at most so many bytes per second leave this socket
model = DistributedDataParallel(network(512))
distributed.all_reduce(torch.ones(1))
for name in os.listdir("/proc/self/fd"):
    try:
        with socket.socket(fileno=os.dup(int(name))) as it:
            if it.type == socket.SOCK_STREAM and it.family in (socket.AF_INET, socket.AF_INET6):
                it.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 20_000_000)
    except OSError:
        continue
train(model, forever(64, 512))
"""


def findings_of(script: str, folder: Path) -> dict[str, Finding]:
    (folder / "train.py").write_text(HEAD + script, encoding="utf-8")
    workload = Workload(
        kind="module",
        target="torch.distributed.run",
        arguments=("--standalone", "--nproc-per-node=2", "train.py"),
        directory=str(folder),
        python=sys.executable,
    )
    executor = LocalExecutor(folder / "runs", environment={"OMP_NUM_THREADS": "1"})
    study = profile(workload, Options(), executor)
    assert study.status == "finished"
    return {it.rule: it for it in study.findings}


def said(finding: Finding) -> str:
    return " ".join((finding.title, *finding.evidence))


def assert_said(finding: Finding, words: Sequence[str]) -> None:
    for it in words:
        assert it in said(finding), said(finding)


@pytest.mark.parametrize(
    ("script", "rule", "words"),
    [
        (EXPOSED, "exposed-communication", ("of it in all-reduce", "MiB (a bucket of DistributedDataParallel)")),
        (UNEQUAL, "unequal-data", ("Rank 1 trains on 100 % more samples per step than rank 0.",)),
        (DISAGREEING, "ranks-disagree", ("The losses of rank",)),
        (BYPASSED, "different-weights", ("without its DistributedDataParallel", "weights of rank 1 differ")),
        (APART, "different-weights", ("The weights of rank 1 differ from those of rank 0 after",)),
        (CHECKPOINTS, "checkpoint-cost", ("the other rank waits for it",)),
        (SLOW_LINK, "slow-link", ("The all-reduce of", "between ranks 0 and 1 takes")),
    ],
    ids=["exposed", "unequal", "disagreeing", "bypassed", "apart", "checkpoints", "slow-link"],
)
def test_a_planted_cause_is_found(script: str, rule: str, words: Sequence[str], tmp_path: Path) -> None:
    found = findings_of(script, tmp_path)
    assert rule in found, {name: it.title for name, it in found.items()}
    assert_said(found[rule], words)
    if script == BYPASSED:
        line = 1 + next(at for at, it in enumerate(HEAD.splitlines()) if "model(x)" in it)
        site = found[rule].site
        assert site is not None and site.line == line
    if rule != "different-weights":
        assert "different-weights" not in found, said(found["different-weights"])
    if rule != "slow-link":
        assert "slow-link" not in found, said(found["slow-link"])
