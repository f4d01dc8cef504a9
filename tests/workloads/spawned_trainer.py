"""The training happens in a spawned process; the parent waits for what it sends."""

import argparse
import json

import torch
import torch.multiprocessing as mp
from torch import nn


def train(steps, results):
    torch.manual_seed(21)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        x = torch.randn(20, 10)
        loss = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    results.put(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    context = mp.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=train, args=(args.steps, results))
    process.start()
    losses = results.get()
    process.join()
    print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))


if __name__ == "__main__":
    main()
