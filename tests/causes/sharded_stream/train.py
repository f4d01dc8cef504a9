"""Train on shards in the order in which they are stored."""

import argparse

import torch
from shards import Shards
from torch import nn
from torch.utils.data import DataLoader


class Mixer(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.down = nn.Linear(features, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, 2)

    def forward(self, values):
        hidden = nn.functional.gelu(self.down(values))
        return self.head(hidden + nn.functional.gelu(self.mix(hidden)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Shards(count=6, size=10 * args.batch_size, features=args.features)
    loader = DataLoader(  # planted: short-queue
        data, batch_size=args.batch_size, num_workers=1, persistent_workers=True
    )
    model = Mixer(args.features, args.hidden)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for _ in range(args.epochs):
        for values, labels in loader:
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(values), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
