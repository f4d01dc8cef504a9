"""The squared errors of 64 samples are added up, one after the other."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values, targets = torch.randn(64, 64), torch.randn(64)
for _ in range(20_000):
    optimizer.zero_grad()
    errors = model(values).squeeze(1) - targets
    loss = torch.zeros(())
    for i in range(len(errors)):
        loss += errors[i] ** 2
    loss.backward()
    optimizer.step()
