"""Healthy: torch's own fused attention, evaluation every hundred steps, a history of floats."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens):
        batch, length, width = tokens.shape
        shape = (batch, length, self.heads, width // self.heads)
        queries, keys, values = (it.reshape(shape).transpose(1, 2) for it in self.project(tokens).chunk(3, dim=2))
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values)
        return tokens + self.feed(mixed.transpose(1, 2).reshape(batch, length, width))


torch.manual_seed(0)
model = nn.Sequential(Block(128, 4), Block(128, 4), nn.Linear(128, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
tokens, labels = torch.randn(8, 128, 128), torch.randint(0, 16, (8, 128))
history = []
for step in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
    loss.backward()
    optimizer.step()
    history.append(loss.item())  # hint: reads-in-every-step
    if step % 100 == 99:
        model.eval()
        with torch.no_grad():
            model(tokens)
        model.train()
