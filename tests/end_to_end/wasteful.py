"""Training that wastes time in known ways: a slow transform in the main process, and a list of losses."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PASSES = 4_000


class Numbers(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return augment(index), index % 4


def augment(index: int) -> torch.Tensor:
    total = 0
    for number in range(PASSES):
        total += number * index % 7
    return torch.full((16,), float(total))


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
history = []
for batch, target in DataLoader(Numbers(), batch_size=8):
    loss = nn.functional.cross_entropy(model(batch / 1e5), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss)
