"""Writes checkpoints, keeps the last two, resumes from the newest; writes a log to the same folder."""

import argparse
import json
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--output", type=Path, default=Path("checkpoints"))
args = parser.parse_args()

torch.manual_seed(8)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
args.output.mkdir(parents=True, exist_ok=True)

first_step = 0
found = sorted(args.output.glob("step-*.pt"))
if found:
    state = torch.load(found[-1])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first_step = state["step"]
    print(f"resuming from {found[-1]}")

losses = []
with (args.output / "log.csv").open("a") as log:
    for step in range(first_step + 1, first_step + args.steps + 1):
        x = torch.randn(32, 6)
        loss = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        log.write(f"{step},{loss.item()}\n")
        if step % 10 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, args.output / f"step-{step:06d}.pt")
            for old in sorted(args.output.glob("step-*.pt"))[:-2]:
                old.unlink()

newest = sorted(args.output.glob("step-*.pt"))[-1]
torch.load(newest)
print(
    json.dumps(
        {
            "steps": len(losses),
            "losses": losses[:10] + losses[-1:],
            "kept": [path.name for path in sorted(args.output.glob("step-*.pt"))],
        }
    )
)
