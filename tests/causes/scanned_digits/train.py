"""Train a small convolutional network on scanned digits."""

import argparse

import torch
from data import ScannedDigits
from torch import nn
from torch.utils.data import DataLoader


def build_model(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    loader = DataLoader(ScannedDigits(), batch_size=args.batch_size, shuffle=True)  # planted: no-workers, loader-bound
    model = build_model(args.width)
    model(torch.zeros(1, 3, 32, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for images, labels in loader:
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
