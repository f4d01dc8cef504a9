"""A policy's loss: likelihood of good actions, and a bonus for staying undecided."""

import torch
from torch import nn


class PolicyLoss(nn.Module):
    def __init__(self, bonus):
        super().__init__()
        self.bonus = bonus

    def forward(self, logits, actions, advantages):
        probabilities = torch.softmax(logits.float(), dim=1)
        chosen = probabilities.gather(1, actions[:, None]).squeeze(1)
        entropy = -(probabilities * torch.log(probabilities)).sum(dim=1)
        return -(chosen * advantages).mean() - self.bonus * entropy.mean()
