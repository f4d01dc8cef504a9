"""Gated residual blocks that monitor the size of their activations."""

import torch
from torch import nn


class Watch:
    """Keep the largest value seen."""

    def __init__(self):
        self.largest = 0.0

    def see(self, values):
        self.largest = max(self.largest, values.detach().abs().max().item())  # planted: graph-breaks


class GatedBlock(nn.Module):
    def __init__(self, width, watch):
        super().__init__()
        self.value = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.watch = watch

    def forward(self, x):
        values = torch.tanh(self.value(x)) * 1.2 + 0.1
        mixed = values * torch.sigmoid(self.gate(x)) + x
        self.watch.see(mixed)
        return self.norm(torch.nn.functional.gelu(mixed) + 0.5 * x)


class Network(nn.Module):
    def __init__(self, inputs, width, depth, outputs):
        super().__init__()
        self.watch = Watch()
        self.stem = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(GatedBlock(width, self.watch) for _ in range(depth))
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
