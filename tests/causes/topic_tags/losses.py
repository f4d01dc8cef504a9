"""Losses for samples with several labels."""

import torch
from torch import nn


class WeightedBinaryLoss(nn.Module):
    """Cross-entropy for each label, with larger weights for rare labels."""

    def __init__(self, positive_weight):
        super().__init__()
        self.positive_weight = positive_weight

    def forward(self, logits, targets):
        probabilities = torch.sigmoid(logits)
        positive = self.positive_weight * targets * torch.log(probabilities)
        negative = (1 - targets) * torch.log(1 - probabilities)
        return -(positive + negative).mean()
