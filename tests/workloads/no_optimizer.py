"""Gradient descent written by hand: no optimizer object at all."""

import argparse
import json

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--lr", type=float, default=1.0)
args = parser.parse_args()

torch.manual_seed(1111)
corpus = torch.randint(50, (8, 10 * args.steps + 1))


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(50, 16)
        self.rnn = nn.LSTM(16, 16)
        self.decoder = nn.Linear(16, 50)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.encoder(input), hidden)
        return self.decoder(output).view(-1, 50), hidden


def get_batch(i):
    return corpus[:, i : i + 10].t(), corpus[:, i + 1 : i + 11].t().reshape(-1)


model = RNNModel()
criterion = nn.CrossEntropyLoss()
model.train()
hidden = None
losses = []
for i in range(0, 10 * args.steps, 10):
    data, targets = get_batch(i)
    model.zero_grad()
    if hidden is not None:
        hidden = tuple(h.detach() for h in hidden)
    output, hidden = model(data, hidden)
    loss = criterion(output, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-args.lr)
    losses.append(loss.item())

print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
