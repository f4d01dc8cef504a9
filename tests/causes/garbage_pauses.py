"""Reinforcement learning whose replay buffer stores each move as Python objects."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
moves = [(cell, cell + 1) for cell in range(2_000)]
replay = [list(move) for _ in range(500) for move in moves]
boards, values = torch.randn(256, 64), torch.randn(256, 64)
for _ in range(100_000):
    replay += map(list, moves)
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.mse_loss(model(boards), values)
    loss.backward()
    optimizer.step()
