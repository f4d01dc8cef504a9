"""Keep each loss, and with it its graph, for the average at the end."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
losses = []
for _ in range(100_000):
    values, labels = torch.randn(64, 256), torch.randint(0, 4, (64,))
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss)  # planted: memory-growth
