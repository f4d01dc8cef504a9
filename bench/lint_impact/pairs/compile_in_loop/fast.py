"""A model of two layers, wrapped for the compiler in every step."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values, labels = torch.randn(64, 64), torch.randint(0, 10, (64,))
compiled = torch.compile(model)
for _ in range(20_000):
    optimizer.zero_grad()
    nn.functional.cross_entropy(compiled(values), labels).backward()
    optimizer.step()
