"""Epochs of forty short steps, fed by two workers."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(1280, 256), torch.randint(0, 10, (1280,)))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(1000):
        for values, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(values), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
