"""A small training script with something to gain in its loader, its precision and its optimizer, that starts slowly.

``--startup`` is how many seconds it sleeps before its loop, as a script does that indexes files or loads a checkpoint.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--startup", type=float, default=0.0)
parser.add_argument("--steps", type=int, default=100_000)
choices = parser.parse_args()


class Sentences(Dataset):
    """Random words, each sample of which takes some computation in Python."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        words = torch.randint(0, 2000, (64,), generator=torch.Generator().manual_seed(index))
        for _ in range(20):
            words = (words * 31 + index) % 2000
        return words


class Model(nn.Module):
    """A small encoder that predicts the next word."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(2000, 192)
        layer = nn.TransformerEncoderLayer(192, 4, 768, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3)
        self.head = nn.Linear(192, 2000)

    def forward(self, words):
        return self.head(self.encoder(self.words(words)))


def main():
    """Train."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    loader = DataLoader(Sentences(), batch_size=16, shuffle=True)
    time.sleep(choices.startup)
    for step, words in enumerate(loader):
        if step == choices.steps:
            break
        loss = nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
