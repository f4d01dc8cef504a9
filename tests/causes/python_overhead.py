"""Count words in Python between forward and backward."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
words = [f"word{number * 7919 % 997}" for number in range(4000)]
values, labels = torch.randn(64, 256), torch.randint(0, 4, (64,))
for _ in range(100_000):
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
# Planted without a line: python-overhead
