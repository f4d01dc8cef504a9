"""A residual MLP for tables."""

from torch import nn


class Residual(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.body = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, width)
        )

    def forward(self, x):
        return x + self.body(x)


def build(inputs, width, depth, dropout):
    blocks = [Residual(width, dropout) for _ in range(depth)]
    return nn.Sequential(nn.Linear(inputs, width), *blocks, nn.LayerNorm(width), nn.Linear(width, 1))
