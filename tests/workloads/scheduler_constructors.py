"""Schedulers whose constructors already touch optimizer.step: no step is taken there."""

import argparse
import json

import torch
from torch import nn
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LinearLR, SequentialLR

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

torch.manual_seed(4)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = SequentialLR(
    optimizer,
    [
        LinearLR(optimizer, start_factor=0.1, total_iters=10),
        CosineAnnealingLR(optimizer, T_max=args.steps - 20),
        ConstantLR(optimizer, factor=0.1, total_iters=10),
    ],
    milestones=[10, args.steps - 10],
)

losses = []
for _ in range(args.steps):
    x = torch.randn(16, 8)
    loss = nn.functional.mse_loss(model(x), x[:, :1] * x[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())

print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:], "lr": scheduler.get_last_lr()}))
