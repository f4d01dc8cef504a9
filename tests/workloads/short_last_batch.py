"""The last batch of each epoch has three samples instead of sixteen."""

import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=12)
args = parser.parse_args()
torch.manual_seed(13)
x = torch.randn(4 * 16 + 3, 10)
loader = DataLoader(TensorDataset(x, (x.sum(dim=1) > 0).long()), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
samples = []
for _ in range(args.epochs):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        samples.append(len(inputs))
print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:], "samples": samples}))
