"""Healthy: convolutions without a bias before their norms, clipped gradients, a schedule."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1, bias=False),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1, bias=False),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 4),
).to(memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10_000)
images = torch.randn(64, 3, 32, 32).to(memory_format=torch.channels_last)
labels = torch.randint(0, 4, (64,))
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
