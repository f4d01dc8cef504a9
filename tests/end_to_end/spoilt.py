"""A small training script whose numbers stop being finite at some step, in a chosen way."""

import argparse
import math
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CAUSES = (
    "none", "log", "gradient", "rate", "worker", "setup", "leaves", "raises", "chance", "compiled", "half", "scaler",
    "by-hand", "vector-loss",
)  # fmt: skip

parser = argparse.ArgumentParser()
parser.add_argument("--cause", choices=CAUSES, required=True)
parser.add_argument("--at", type=int, default=12)
parser.add_argument("--steps", type=int, default=30)
args = parser.parse_args()
cause = args.cause

torch.set_num_threads(1)
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
    if torch.distributed.get_rank() != 1:
        cause = "none"
torch.manual_seed(3)


class Samples(Dataset):
    def __init__(self):
        data = torch.randn(8 * args.steps, 16)
        if cause == "setup":
            data[8 * args.at :, 5] = 1.0
            parts = data.split(8)
            data = torch.cat([(part - part.mean(dim=0)) / part.std(dim=0) for part in parts])  # setup
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        sample = self.data[index]
        if cause == "worker" and index == 8 * args.at + 3:
            sample = sample.clone()
            sample[2] = math.nan
        return sample, sample.sum(dim=0, keepdim=True)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 12)
        self.register_buffer("mask", torch.full((4, 4), -math.inf).triu(1))

    def forward(self, x):
        query, key, value = self.project(x).chunk(3, dim=-1)
        return (query @ key.transpose(1, 2) + self.mask).softmax(dim=-1) @ value


class Spoil(nn.Module):
    """Pass the input on, and make it not finite at the requested step."""

    step = 0

    def forward(self, x):
        if self.step < args.at:
            return x
        if cause in ("log", "leaves", "raises", "compiled", "vector-loss"):
            return x + (x.detach() * 0 - 1).log()  # log
        if cause == "gradient":
            return x + (x - x.detach()).square().sum(dim=1, keepdim=True).sqrt()  # gradient
        if cause == "half":
            return x + torch.nn.functional.linear(x * 0 + 300, torch.full((8, 16), 300.0)).float().mean()  # half
        if cause == "chance":
            return x / 0 if os.urandom(1)[0] % 2 == CHANCE else x
        return x


CHANCE = 0
spoil = Spoil()
model = nn.Sequential(nn.Unflatten(1, (4, 4)), Attention(), nn.Flatten(), spoil, nn.Linear(16, 1))
if "RANK" in os.environ:
    model = nn.parallel.DistributedDataParallel(model)
step_model = torch.compile(model, backend="eager") if cause == "compiled" else model
by_hand = cause == "by-hand"
optimizer = None if by_hand else torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", enabled=cause in ("half", "scaler"), init_scale=2.0**24)
loader = DataLoader(Samples(), batch_size=8, num_workers=1 if cause == "worker" else 0)
for step, (inputs, targets) in enumerate(loader):
    spoil.step = step
    with torch.autocast("cpu", torch.float16, enabled=cause in ("half", "scaler")):
        outputs = step_model(inputs)
    losses = (outputs.float() - targets).square()
    if cause == "leaves" and not torch.isfinite(losses.mean()):
        print("Loss is nan, stopping training")
        sys.exit(1)
    if cause == "raises":
        torch.multinomial(losses.flatten() + 1e-9, 1)
    if by_hand:
        losses.mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= (math.inf if step == args.at else 0.01) * parameter.grad  # by-hand
                parameter.grad = None
        continue
    optimizer.zero_grad()
    if cause == "vector-loss":
        losses.backward(torch.full_like(losses, 1 / 8))
    else:
        scaler.scale(losses.mean()).backward()
    if cause == "rate":
        optimizer.param_groups[0]["lr"] = math.inf if step == args.at else 0.01
    scaler.step(optimizer)  # rate
    scaler.update()
