"""A compiled model that reads a tensor's value within its forward pass."""

import torch
from torch import nn


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 256)
        self.second = nn.Linear(256, 4)

    def forward(self, values):
        hidden = self.first(values)
        if hidden.abs().max().item() > 100:  # planted: graph-breaks
            hidden = hidden.clamp(-100, 100)
        return self.second(torch.relu(hidden))


torch.manual_seed(0)
model = torch.compile(Gated())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(64, 256), torch.randint(0, 4, (64,))
for _ in range(100_000):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
