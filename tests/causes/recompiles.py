"""A compiled model that takes the step's number as an argument."""

import torch
from torch import nn


class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 4)

    def forward(self, values, temperature):  # planted: recompiles
        return self.linear(values) / temperature


torch.manual_seed(0)
model = torch.compile(Annealed(), dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(64, 256), torch.randint(0, 4, (64,))
for step in range(100_000):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(values, 1 + min(step, 6)), labels)
    loss.backward()
    optimizer.step()
