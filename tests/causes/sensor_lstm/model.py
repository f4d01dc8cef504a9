"""A recurrent classifier of sensor recordings."""

import torch
from torch import nn


class SensorNet(nn.Module):
    def __init__(self, channels, hidden, classes):
        super().__init__()
        self.hidden = hidden
        self.cell = nn.LSTMCell(channels, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, signal):
        h = signal.new_zeros(signal.size(0), self.hidden)
        c = torch.zeros_like(h)
        for moment in signal.unbind(dim=1):
            h, c = self.cell(moment, (h, c))
        return self.head(h)
