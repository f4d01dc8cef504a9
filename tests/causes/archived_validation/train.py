"""Classify sensor recordings by their frequency."""

import torch
from records import LENGTH, ArchivedRecords, simulate
from torch import nn
from torch.utils.data import DataLoader


class Classifier(nn.Module):
    def __init__(self, hidden=384):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(LENGTH, hidden), nn.ReLU(), nn.Linear(hidden, 4))

    def forward(self, values):
        with torch.autocast("cpu", torch.bfloat16):
            return self.layers(values)


class Experiment:
    def __init__(self, batch_size=64):
        values, labels = simulate(1920, seed=0)
        self.values, self.labels = torch.from_numpy(values), torch.from_numpy(labels)
        self.batch_size = batch_size
        self.validation = DataLoader(ArchivedRecords(384, seed=1), batch_size=128)
        self.model = Classifier()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, fused=True)

    def train_epoch(self):
        self.model.train()
        for rows in torch.randperm(len(self.values)).split(self.batch_size):
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(self.values[rows]), self.labels[rows])
            loss.backward()
            self.optimizer.step()

    @torch.inference_mode()
    def validate(self):
        self.model.eval()
        right = 0
        for values, labels in self.validation:
            predicted = self.model(values).argmax(dim=1)  # planted: evaluation-cost
            right += (predicted == labels).sum().item()
        return right / len(self.validation.dataset)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    experiment = Experiment()
    for epoch in range(500):
        experiment.train_epoch()
        print(f"epoch {epoch}: accuracy {experiment.validate():.3f}")
