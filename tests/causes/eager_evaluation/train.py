"""Forecast the next value of noisy waves with a small convolutional network."""

import argparse

import torch
from torch import nn
from torch.utils.data import TensorDataset
from trainer import Trainer


def waves(count, length, seed):
    generator = torch.Generator().manual_seed(seed)
    phase, speed = torch.rand(2, count, 1, generator=generator)
    clean = torch.sin(6.28 * phase + (0.1 + 0.3 * speed) * torch.arange(length + 1))
    noisy = clean + 0.1 * torch.randn(clean.shape, generator=generator)
    return TensorDataset(noisy[:, None, :-1], clean[:, -1:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--length", type=int, default=96)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium")
    model = nn.Sequential(
        nn.Conv1d(1, 32, 5, stride=2),
        nn.ReLU(),
        nn.Conv1d(32, 32, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(128, 1),
    )
    trainer = Trainer(model, waves(2048, args.length, seed=0), waves(192, args.length, seed=1))
    trainer.train(args.epochs)
    print(f"held out: {min(trainer.history):.4f}")


if __name__ == "__main__":
    main()
