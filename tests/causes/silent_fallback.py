"""A compiled model whose batches change length in every step, until torch falls back to eager."""

import torch
from torch import nn

torch.manual_seed(0)
model = torch.compile(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)), dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for step in range(100_000):
    length = 32 + step % 24
    values, labels = torch.randn(length, 64), torch.randint(0, 4, (length,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
# Planted without a line: silent-fallback, recompiles
