"""Train the captioner with teacher forcing; log its overlap with the references."""

import argparse

import torch
from metrics import OverlapScore
from model import Captioner
from torch.nn import functional as F


def make_data(samples, length, vocabulary):
    features = torch.randn(samples, 512)
    captions = torch.randint(1, vocabulary, (samples, length + 1))
    captions[:, -3:] = 0
    return features, captions


def train(options):
    torch.manual_seed(options.seed)
    features, captions = make_data(2048, options.length, 96)
    model = Captioner()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, fused=True)
    for epoch in range(options.epochs):
        overlap = OverlapScore()
        for rows in torch.randperm(len(features)).split(options.batch_size):
            inputs, targets = captions[rows, :-1], captions[rows, 1:]
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(features[rows], inputs)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0)
            loss.backward()
            optimizer.step()
            overlap.update(logits.argmax(dim=2), targets)
        print(f"epoch {epoch}: overlap {overlap.compute():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
