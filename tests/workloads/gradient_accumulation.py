"""Four micro-batches a step; a GradScaler is always there, though disabled on this device."""

import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--accumulation", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(7)
device = "cuda" if torch.cuda.is_available() else "cpu"
size = 8 * args.steps * args.accumulation
loader = DataLoader(TensorDataset(torch.randn(size, 16), torch.randn(size, 1)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler(device, enabled=False)

losses = []
running = 0.0
for i, (x, y) in enumerate(loader):
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    loss = loss / args.accumulation
    scaler.scale(loss).backward()
    running += loss.item()
    if (i + 1) % args.accumulation == 0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(running)
        running = 0.0

print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
