"""A small transformer encoder, with a switch left over from a search for NaN."""

from __future__ import annotations

import torch
from torch import nn

torch.autograd.set_detect_anomaly(True)
torch.manual_seed(0)
torch.set_num_threads(1)
layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
model = nn.TransformerEncoder(layer, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values, targets = torch.randn(16, 32, 64), torch.randn(16, 32, 64)
for _ in range(20_000):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(values), targets).backward()
    optimizer.step()
