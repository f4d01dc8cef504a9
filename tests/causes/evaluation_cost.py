"""Validate after every epoch of forty steps, with gradients and in batches of four."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)


class Trainer:
    def __init__(self, epochs):
        self.epochs = epochs
        data = TensorDataset(torch.randn(5120, 512), torch.randint(0, 10, (5120,)))
        self.batches = DataLoader(data, batch_size=128)
        self.held_out = DataLoader(data, batch_size=4)
        self.model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, fused=True)

    def fit(self):
        for _ in range(self.epochs):
            self.model.train()
            for inputs, labels in self.batches:
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(inputs), labels).backward()
                self.optimizer.step()
            self.validate()

    def validate(self):
        self.model.eval()
        right = 0
        for inputs, labels in self.held_out:
            right += (self.model(inputs).argmax(dim=1) == labels).sum().item()  # planted: evaluation-cost
        return right / len(self.held_out.dataset)


Trainer(epochs=1000).fit()
