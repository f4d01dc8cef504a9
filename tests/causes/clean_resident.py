"""Healthy: data in memory, bfloat16, a fused optimizer, a loss read every fifty steps."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
values, labels = torch.randn(256, 512), torch.randint(0, 8, (256,))
for step in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
