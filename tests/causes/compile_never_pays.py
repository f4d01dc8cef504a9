"""Compile a model for a tiny dataset, without a compile cache."""

import os
from itertools import pairwise

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(512, 256), torch.randint(0, 4, (512,)))
loader = DataLoader(data, batch_size=64)
widths = (256, 320, 384, 448, 512, 448)
layers = [nn.Sequential(nn.Linear(before, after), nn.LayerNorm(after), nn.GELU()) for before, after in pairwise(widths)]
model = torch.compile(nn.Sequential(*layers, nn.Linear(widths[-1], 4)))  # planted: compile-never-pays
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(100):
    for values, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(values), labels)
        loss.backward()
        optimizer.step()
