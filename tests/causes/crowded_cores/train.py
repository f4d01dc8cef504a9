"""Classify photographs of cells, with a worker that decodes them."""

import os

import torch
from data import Cells
from torch import nn
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, width=64, batch_size=32):
        self.loader = DataLoader(  # planted: crowded-cores
            Cells(), batch_size, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True
        )
        self.model = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, 4),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, fused=True)

    def train_epoch(self):
        for pictures, labels in self.loader:
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(self.model(pictures), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(os.cpu_count())
    trainer = Trainer()
    for _ in range(200):
        trainer.train_epoch()
