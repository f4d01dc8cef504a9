"""Textbook attention that stores all scores."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)

    def forward(self, tokens):  # planted: eager-attention
        batch, length, width = tokens.shape
        shape = (batch, length, self.heads, width // self.heads)
        queries, keys, values = (it.reshape(shape).transpose(1, 2) for it in self.project(tokens).chunk(3, dim=2))
        scores = queries @ keys.transpose(2, 3) / math.sqrt(width // self.heads)
        weights = torch.softmax(scores, dim=3)
        return (weights @ values).transpose(1, 2).reshape(batch, length, width)


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(Attention(64, 4), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
tokens, labels = torch.randn(1, 1024, 64), torch.randint(0, 8, (1, 1024))
for _ in range(100_000):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
    loss.backward()
    optimizer.step()
