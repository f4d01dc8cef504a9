"""Train a classifier in which each batch decides how deep it is processed: easy ones leave early.

    python control_flow.py --steps 500

The data is made up. Whether a batch leaves depends on computed numbers, for which Python must wait.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class EarlyExit(nn.Module):
    def __init__(self, width, layers, classes, confident):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
        self.head = nn.Linear(width, classes)
        self.confident = confident

    def forward(self, x):
        hidden = self.first(x)
        for block in self.blocks:
            hidden = hidden + block(hidden)
            confidence = self.head(hidden).softmax(dim=-1).amax(dim=-1).mean().item()
            if confidence > self.confident:
                break
        return self.head(hidden)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--confident", type=float, default=0.9)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = torch.randn(16384, 64)
    labels = (inputs @ torch.randn(64, 10) + 5 * torch.randn(16384, 10)).argmax(dim=1)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=args.batch_size, shuffle=True)
    model = EarlyExit(args.width, args.layers, 10, args.confident).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    step = 0
    while step < args.steps:
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 1000 == 0:
                print(f"step {step}  loss {loss.item():.4f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
