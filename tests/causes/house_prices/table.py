"""A table of houses: numeric columns, and prices that depend on them."""

import torch


class Table:
    def __init__(self, rows, columns, seed):
        generator = torch.Generator().manual_seed(seed)
        self.features = torch.randn(rows, columns, generator=generator)
        effects = torch.randn(columns, generator=generator)
        self.prices = (self.features @ effects).sin() + 0.1 * torch.randn(rows, generator=generator)

    def shuffled(self, batch_size):
        for rows in torch.randperm(len(self.features)).split(batch_size):
            yield self.features[rows], self.prices[rows]
