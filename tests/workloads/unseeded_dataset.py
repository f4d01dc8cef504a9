"""The dataset draws random numbers without a seed: two runs of the same script differ."""

import argparse
import json

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self, size):
        self.rng = np.random.default_rng()
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        x = self.rng.normal(size=8).astype(np.float32)
        return torch.from_numpy(x), torch.tensor(x[:1])


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
torch.manual_seed(15)
loader = DataLoader(Noisy(16 * args.steps), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
