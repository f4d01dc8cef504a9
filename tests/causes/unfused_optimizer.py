"""Many small layers, and Adam without its fused form."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(60)), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)  # planted: unfused-optimizer
values, labels = torch.randn(16, 32), torch.randint(0, 4, (16,))
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
