"""A module of a package, started as python -m packaged.train; imports its neighbours relatively."""

import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from .network import make_network


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(10)
    x = torch.randn(10 * args.steps, 6)
    loader = DataLoader(TensorDataset(x, x[:, :3].argmax(dim=1)), batch_size=10, shuffle=True)
    model = make_network()
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    losses = []
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:], "package": __package__}))


if __name__ == "__main__":
    main()
