"""Train a classifier of sensor recordings."""

from dataclasses import dataclass, field

import torch
from data import recordings
from model import SensorNet
from torch import nn


@dataclass
class DataConfig:
    samples: int = 1024
    length: int = 96
    channels: int = 3
    classes: int = 5


@dataclass
class Config:
    data: DataConfig = field(default_factory=DataConfig)
    hidden: int = 48
    batch_size: int = 16
    epochs: int = 300
    learning_rate: float = 3e-3


def main(config):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    signals, labels = recordings(config.data.samples, config.data.length, config.data.channels, config.data.classes)
    model = SensorNet(config.data.channels, config.hidden, config.data.classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate, fused=True)
    for epoch in range(config.epochs):
        for rows in torch.randperm(len(signals)).split(config.batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(signals[rows]), labels[rows])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.3f}")


if __name__ == "__main__":
    main(Config())
