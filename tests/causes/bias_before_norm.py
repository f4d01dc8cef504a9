"""Convolutions with a bias that the batch-norm behind them takes away."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 4),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 4, (16,))
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), labels)  # planted: bias-before-norm
    loss.backward()
    optimizer.step()
