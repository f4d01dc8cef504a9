"""A learning rate that makes the weights diverge within some steps."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=5.0, fused=True)
values, targets = torch.randn(64, 32), torch.randn(64, 1)
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.mse_loss(model(values), targets)
    loss.backward()
    optimizer.step()
# Planted without a line: non-finite-loss
