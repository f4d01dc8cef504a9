"""Train a classifier of document topics."""

from dataclasses import asdict, dataclass

import torch
from documents import documents
from losses import WeightedBinaryLoss
from torch import nn


@dataclass(frozen=True)
class Data:
    count: int = 4096
    vocabulary: int = 1024
    topics: int = 16


@dataclass(frozen=True)
class Training:
    width: int = 512
    batch_size: int = 256
    learning_rate: float = 1e-3
    epochs: int = 500


def build(data, training):
    return nn.Sequential(
        nn.Linear(data.vocabulary, training.width),
        nn.ReLU(),
        nn.Linear(training.width, training.width),
        nn.ReLU(),
        nn.Linear(training.width, data.topics),
    )


def main(data, training):
    torch.manual_seed(0)
    counts, tags = documents(**asdict(data))
    model = build(data, training)
    criterion = WeightedBinaryLoss(positive_weight=4.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.learning_rate, fused=True)
    for epoch in range(training.epochs):
        for rows in torch.randperm(len(counts)).split(training.batch_size):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = criterion(model(counts[rows]), tags[rows])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main(Data(), Training())
