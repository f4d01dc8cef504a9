"""Predict the readings of two hundred instruments from shared features."""

from dataclasses import dataclass

import torch
from model import MultiTask
from trainer import Trainer


@dataclass
class Config:
    inputs: int = 256
    width: int = 512
    tasks: int = 200
    batch_size: int = 256
    learning_rate: float = 1e-3
    epochs: int = 500
    rows: int = 4096


def synthetic(config):
    features = torch.randn(config.rows, config.inputs)
    return features, torch.tanh(features @ torch.randn(config.inputs, 8 * config.tasks) / 16)


if __name__ == "__main__":
    torch.manual_seed(7)
    config = Config()
    model = MultiTask(config.inputs, config.width, config.tasks)
    Trainer(model, config).fit(*synthetic(config))
