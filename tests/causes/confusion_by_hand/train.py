"""Train a network that labels points of the plane by their circle segment."""

import argparse
import math

import torch
from meters import Average, ConfusionMatrix
from torch import nn
from tqdm import tqdm


def sample(count, classes):
    points = torch.randn(count, 2)
    angles = torch.atan2(points[:, 1], points[:, 0])
    return points, ((angles + math.pi) / (2 * math.pi) * classes).long().clamp(max=classes - 1)


def train_epoch(model, optimizer, args):
    confusion, average = ConfusionMatrix(args.classes), Average()
    bar = tqdm(range(args.steps), mininterval=1.0)
    for _ in bar:
        points, labels = sample(args.batch_size, args.classes)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(points)
            loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(loss.item())  # hint: reads-in-every-step
        confusion.update(logits.argmax(dim=1), labels)
    print(f"loss {average.value():.3f}, accuracy {confusion.accuracy():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(2, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, args.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for _ in range(args.epochs):
        train_epoch(model, optimizer, args)


if __name__ == "__main__":
    main()
