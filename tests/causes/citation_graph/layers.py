"""Message passing."""

import torch
from torch import nn


class MessagePassing(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.neighbour = nn.Linear(inputs, outputs, bias=False)

    def forward(self, nodes, source, target):
        messages = self.neighbour(nodes)[source]  # planted: dominant-operator
        received = torch.zeros(len(nodes), messages.size(1), dtype=messages.dtype)
        return self.own(nodes) + received.index_add(0, target, messages)
