"""Fit a deep network to the digits, and log every gradient."""

import tempfile
from pathlib import Path

import torch
from metrics import StepLog
from sklearn.datasets import load_digits
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, values):
        return values + torch.relu(self.linear(self.norm(values)))


def train(folder, depth=6, width=256, steps=50_000):
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    model = nn.Sequential(nn.Linear(64, width), *(Residual(width) for _ in range(depth)), nn.Linear(width, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    log = StepLog(Path(folder, "steps.jsonl"))
    for step in range(steps):
        rows = torch.randint(len(images), (128,))
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.record(step, loss, model)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        train(folder)
