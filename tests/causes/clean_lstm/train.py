"""A character language model with an LSTM, sequence first, and truncated backpropagation through time."""

import argparse
import math

import torch
from corpus import Corpus
from torch import nn


class CharacterModel(nn.Module):
    def __init__(self, characters, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(characters, 128)
        self.recurrent = nn.LSTM(128, width, layers)
        self.head = nn.Linear(width, characters)

    def forward(self, tokens, state):
        hidden, state = self.recurrent(self.embedding(tokens), state)
        return self.head(hidden), state


def detached(state):
    return tuple(it.detach() for it in state)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()

    torch.manual_seed(3)
    corpus = Corpus(args.columns)
    model = CharacterModel(len(corpus.characters), args.width, args.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(20):
        state = None
        for window, (tokens, targets) in enumerate(corpus.windows(args.length)):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits, state = model(tokens, state and detached(state))
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            if window % 100 == 0:
                print(f"epoch {epoch} window {window}: perplexity {math.exp(loss.item()):.2f}")


if __name__ == "__main__":
    main()
