"""Reads globals(), __file__, sys.argv, and exec(open('config.py').read()) from the working directory."""

import json
import sys
from ast import literal_eval
from pathlib import Path

import torch
from torch import nn

steps = 60
hidden = 8
batch_size = 16
learning_rate = 1e-2
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
exec(open("config.py").read())  # noqa: PTH123, SIM115
for argument in sys.argv[1:]:
    key, value = argument.removeprefix("--").split("=")
    if key not in globals():
        raise ValueError(f"Unknown config key: {key}")
    globals()[key] = literal_eval(value)
config = {k: globals()[k] for k in config_keys}

torch.manual_seed(9)
model = nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
losses = []
for _ in range(steps):
    x = torch.randn(batch_size, 6)
    loss = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

print(
    json.dumps(
        {
            "steps": len(losses),
            "losses": losses[:10] + losses[-1:],
            "config": config,
            "name": __name__,
            "file": str(Path(__file__).name),
            "argv": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "globals": sorted(globals()),
            "path": Path(sys.path[0]).name,
            "main": sys.modules["__main__"].__dict__ is globals(),
        }
    )
)
