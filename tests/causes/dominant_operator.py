"""Sort a long tensor in every forward pass."""

import torch
from torch import nn


class Ranked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 4)

    def forward(self, values):
        ordered, _ = torch.sort(values, dim=1)  # planted: dominant-operator
        return self.linear(ordered[:, :256])


torch.manual_seed(0)
model = Ranked()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(64, 4096), torch.randint(0, 4, (64,))
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
