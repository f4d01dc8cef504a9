"""Catches KeyboardInterrupt, then saves and evaluates as after a normal end."""

import argparse
import json

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=80)
args = parser.parse_args()

torch.manual_seed(5)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

losses = []
try:
    for _ in range(args.steps):
        x = torch.randn(32, 6)
        loss = nn.functional.mse_loss(model(x), x.prod(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
except KeyboardInterrupt:
    print("exiting from training early")

torch.save(model.state_dict(), "model.pt")
model.load_state_dict(torch.load("model.pt"))
print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
