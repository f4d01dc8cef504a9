"""Predict words of a vocabulary so large that each step's logits are given back to the system, and taken again."""

import torch
from torch import nn

VOCABULARY = 24_000

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(VOCABULARY, 32), nn.Linear(32, VOCABULARY))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
words = torch.randint(0, VOCABULARY, (64, 513))
for step in range(100_000):
    row = words[step % 64]
    optimizer.zero_grad(set_to_none=False)
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(row[:-1]), row[1:])
    loss.backward()
    optimizer.step()
