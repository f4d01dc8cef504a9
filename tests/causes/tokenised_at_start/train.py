"""A short fit of a bigram model to the standard library's source."""

import argparse
import os
from pathlib import Path

import torch
from tokens import Vocabulary, encode_folders
from torch import nn


class Bigrams(nn.Module):
    def __init__(self, vocabulary, width=96):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.norm(self.embedding(tokens)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--packages", nargs="*", default=[".", "asyncio", "email", "encodings", "idlelib", "unittest"])
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch", type=int, default=512)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium")
    library = Path(os.__file__).parent
    tokens = encode_folders([library / it for it in args.packages], Vocabulary(args.vocabulary))
    model = Bigrams(args.vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    for _ in range(args.steps):
        start = int(torch.randint(len(tokens) - args.batch - 1, ()))
        window = tokens[start : start + args.batch + 1]
        loss = nn.functional.cross_entropy(model(window[:-1]), window[1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"final loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
