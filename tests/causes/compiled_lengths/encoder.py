"""A convolutional encoder of texts of any length."""

import torch
from torch import nn


class TextEncoder(nn.Module):
    def __init__(self, width=128, layers=3):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2) for _ in range(layers))
        self.head = nn.Linear(width, 2)

    def forward(self, tokens):  # planted: recompiles
        x = self.embed(tokens).transpose(1, 2)
        for layer in self.layers:
            x = x + torch.nn.functional.gelu(layer(x))
        return self.head(x.mean(dim=2))
