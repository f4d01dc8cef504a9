"""Message passing."""

import torch
from torch import nn


class MessagePassing(nn.Module):
    """Each edge's message depends on both of its ends."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.source = nn.Linear(inputs, outputs, bias=False)
        self.target = nn.Linear(inputs, outputs, bias=False)

    def forward(self, nodes, source, target):  # planted: dominant-operator
        messages = torch.relu(self.source(nodes)[source] + self.target(nodes)[target])
        received = torch.zeros(len(nodes), messages.size(1), dtype=messages.dtype)
        return self.own(nodes) + received.index_add(0, target, messages)
