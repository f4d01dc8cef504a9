"""Started by torchrun: a rank that dies, hangs, never starts, or trains fewer steps than the other; groups made by a
file."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

trouble, rank = sys.argv[1], int(os.environ["RANK"])
if trouble == "never-starts" and rank == 1:
    time.sleep(10**6)
if trouble.startswith("by-file"):
    file = f"file://{Path('group').resolve()}"
    dist.init_process_group("gloo", init_method=file, rank=rank, world_size=2)
else:
    dist.init_process_group("gloo")
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200 if trouble != "fixed-port" else 100_000):
    if rank == 1 and step == 6:
        if trouble == "dies":
            raise RuntimeError("the data of rank 1 is broken")
        if trouble == "is-killed":
            os.kill(os.getpid(), 9)
        if trouble == "hangs":
            time.sleep(10**6)
        if trouble == "ends-early":
            break
    x = torch.randn(8, 10)
    loss = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
