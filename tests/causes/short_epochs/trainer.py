"""A loop over epochs."""

import torch
from torch import nn


class Trainer:
    def __init__(self, model, optimizer, loader, patience=1000):
        self.model = model
        self.optimizer = optimizer
        self.loader = loader
        self.patience = patience
        self.best = float("inf")
        self.worse = 0

    def fit(self, epochs):
        for _ in range(epochs):
            loss = self.run_epoch()
            self.worse = 0 if loss < self.best else self.worse + 1
            self.best = min(self.best, loss)
            if self.worse > self.patience:
                break
        return self.best

    def run_epoch(self):
        self.model.train()
        total = torch.zeros(())
        for images, labels in self.loader:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(self.loader)
