"""Count the lines of noisy spectra."""

from dataclasses import dataclass

import torch
from dataset import CHANNELS, Spectra
from torch import nn
from torch.utils.data import DataLoader
from transforms import Baseline, Compose, Normalise, Smooth


@dataclass
class Config:
    spectra: int = 4096
    batch_size: int = 32
    hidden: int = 512
    epochs: int = 100
    lr: float = 0.01


def make_loader(config):
    transform = Compose(Baseline(), Smooth(radius=8), Normalise())
    return DataLoader(  # planted: loader-bound
        Spectra(config.spectra, transform),
        batch_size=config.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=1,
        persistent_workers=True,
    )


def train(config):
    loader = make_loader(config)
    model = nn.Sequential(nn.Linear(CHANNELS, config.hidden), nn.GELU(), nn.Linear(config.hidden, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9, fused=True)
    for _ in range(config.epochs):
        for spectra, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(spectra), labels)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train(Config())
