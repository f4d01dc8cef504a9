"""Train a deep network and report how many of its units are dead."""

import argparse

import torch
from probe import ActivationProbe
from torch import nn


def build(inputs, width, depth):
    layers = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100_000)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = build(128, arguments.width, arguments.depth)
    probe = ActivationProbe(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    for step in range(arguments.steps):
        inputs = torch.randn(arguments.batch_size, 128)
        targets = inputs.square().mean(dim=1, keepdim=True)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            predicted = model(inputs)
        loss = nn.functional.mse_loss(predicted.float(), targets)
        loss.backward()
        optimizer.step()
        if step % 1000 == 999:
            dead = {name: round(probe.dead_share(name), 3) for name in probe.outputs}
            print(f"step {step}: loss {loss.item():.4f}, dead units {dead}")


if __name__ == "__main__":
    main()
