"""Seeds nothing at all."""

import argparse
import json

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for _ in range(args.steps):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), x[:, :1])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
