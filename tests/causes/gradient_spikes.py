"""Train on data in which an occasional batch was recorded in another unit."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, fused=True)
for step in range(100_000):
    values = torch.randn(64, 32)
    targets = values.sum(dim=1, keepdim=True) * (1000 if step % 31 == 30 else 1)
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.mse_loss(model(values), targets)
    loss.backward()  # planted: gradient-spikes
    optimizer.step()
