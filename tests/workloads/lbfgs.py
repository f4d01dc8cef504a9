"""LBFGS in float64: up to twenty closures in one step."""

import argparse
import json

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()

torch.manual_seed(0)


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 12)
        self.linear = nn.Linear(12, 1)

    def forward(self, input):
        outputs = []
        h = torch.zeros(input.size(0), 12, dtype=torch.double)
        c = torch.zeros(input.size(0), 12, dtype=torch.double)
        for part in input.split(1, dim=1):
            h, c = self.lstm1(part, (h, c))
            outputs.append(self.linear(h))
        return torch.cat(outputs, dim=1)


waves = torch.sin(torch.linspace(0, 6, 9, dtype=torch.double) + torch.rand(16, 1, dtype=torch.double) * 6)
seq = Sequence().double()
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(seq.parameters(), lr=0.1, tolerance_grad=0, tolerance_change=0)

losses = []
for _ in range(args.steps):
    evaluations = []

    def closure():
        optimizer.zero_grad()
        loss = criterion(seq(waves[:, :-1]), waves[:, 1:])
        evaluations.append(loss.item())  # noqa: B023
        loss.backward()
        return loss

    optimizer.step(closure)
    losses.append(sum(evaluations) / len(evaluations))

print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
