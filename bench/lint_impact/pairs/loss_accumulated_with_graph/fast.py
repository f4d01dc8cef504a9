"""The loss of an epoch of 300 steps is added up to be shown."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values, labels = torch.randn(64, 64), torch.randint(0, 10, (64,))
for _ in range(100):
    total = torch.zeros(())
    for _ in range(300):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(values), labels)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print(float(total))
