"""A scaler whose initial scale is far too large and hardly decreases: most steps are skipped."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**125, backoff_factor=0.5, growth_factor=16.0, growth_interval=2)
values, labels = torch.randn(1024, 32), torch.randint(0, 4, (1024,))
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = 1000 * nn.functional.cross_entropy(model(values), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
# Planted without a line: scaler-skips
