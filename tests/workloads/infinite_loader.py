"""A loader without end, read through a prefetcher's next()."""

import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset


class InfiniteDataLoader:
    def __init__(self, dataset, batch_size):
        sampler = RandomSampler(dataset, replacement=True, num_samples=int(1e10))
        self.iterator = iter(DataLoader(dataset, batch_size=batch_size, sampler=sampler))

    def next(self):
        return next(self.iterator)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

torch.manual_seed(0)
x = torch.randn(500, 10)
loader = InfiniteDataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=24)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)

losses = []
step = 0
while step < args.steps:
    images, labels = loader.next()
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    step += 1

print(json.dumps({"steps": step, "losses": losses[:10] + losses[-1:]}))
