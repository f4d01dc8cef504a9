"""A numeric report of a run that only rank 0 writes."""

import torch


class Report:
    def __init__(self, rank):
        self.rank = rank
        self.rows = []

    def describe(self, model):
        """Record quantiles of each weight."""
        if self.rank != 0:
            return
        quantiles = torch.tensor([0.01, 0.5, 0.99])
        weights = {name: it.detach().flatten() for name, it in model.named_parameters()}
        spread = {name: it.quantile(quantiles) for name, it in weights.items()}  # planted: other-time
        self.rows = [*self.rows[-99:], spread]
