"""Sixteen layers of a million weights each, on the processor: their gradients are set to zero, and then added to."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(16))).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
values, targets = torch.randn(8, 1024, device=device), torch.randn(8, 1024, device=device)
for _ in range(20_000):
    optimizer.zero_grad(set_to_none=False)
    nn.functional.mse_loss(model(values), targets).backward()
    optimizer.step()
