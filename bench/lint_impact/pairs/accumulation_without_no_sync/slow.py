"""Two processes that share gradients over gloo and step once in four passes."""

from __future__ import annotations

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values, targets = torch.randn(32, 512), torch.randn(32, 512)
for step in range(20_000):
    loss = nn.functional.mse_loss(model(values), targets) / 4
    loss.backward()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
torch.distributed.destroy_process_group()
