"""1x1 convolutions with a bias that the following batch norm cancels."""

from itertools import pairwise

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
layers = []
for before, after in pairwise((3, 16, 16, 32, 32)):
    layers += [nn.Conv2d(before, after, 1), nn.BatchNorm2d(after), nn.ReLU()]
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
images, labels = torch.randn(64, 3, 16, 16), torch.randint(0, 4, (64,))
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), labels)  # planted: bias-before-norm
    loss.backward()
    optimizer.step()
