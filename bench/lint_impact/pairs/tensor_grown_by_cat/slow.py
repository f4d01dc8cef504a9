"""The outputs of an epoch of 1000 steps are gathered for a metric."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values, targets = torch.randn(64, 64), torch.randn(64, 128)
for _ in range(20):
    gathered = torch.empty(0, 128)
    for _ in range(1000):
        optimizer.zero_grad()
        output = model(values)
        nn.functional.mse_loss(output, targets).backward()
        optimizer.step()
        gathered = torch.cat([gathered, output.detach()])
    print(float(gathered.std()))
