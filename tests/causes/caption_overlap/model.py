"""A GRU that generates captions from image features."""

import torch
from torch import nn


class Captioner(nn.Module):
    def __init__(self, vocabulary=96, features=512, width=64):
        super().__init__()
        self.start = nn.Linear(features, width)
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, features, tokens):
        state = torch.tanh(self.start(features)).unsqueeze(0)
        hidden, _ = self.rnn(self.embed(tokens), state)
        return self.head(hidden)
