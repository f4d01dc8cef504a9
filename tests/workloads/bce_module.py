"""BCELoss is a module too, and it is called after the model; it takes probabilities."""

import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, x):
        return self.net(x).squeeze(1)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
torch.manual_seed(12)
x = torch.randn(16 * args.steps, 10)
loader = DataLoader(TensorDataset(x, (x.sum(dim=1) > 0).float()), batch_size=16, shuffle=True)
model = Classifier()
criterion = nn.BCELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for inputs, labels in loader:
    optimizer.zero_grad()
    loss = criterion(model(inputs), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
