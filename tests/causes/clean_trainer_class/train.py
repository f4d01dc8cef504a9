"""A residual perceptron on digits: a trainer that validates after each epoch."""

import torch
from config import Config
from data import make_batches
from torch import nn


class Residual(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, width))

    def forward(self, values):
        return values + self.layers(self.norm(values))


def build_model(config):
    blocks = [Residual(config.width, config.dropout) for _ in range(config.depth)]
    return nn.Sequential(nn.Linear(64, config.width), *blocks, nn.Linear(config.width, 10))


class Trainer:
    def __init__(self, config):
        torch.manual_seed(config.seed)
        self.config = config
        self.model = build_model(config)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.training_batches, self.validation_batches = make_batches(config.batch_size)

    def loss(self, images, labels):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.criterion(self.model(images), labels)

    def train_epoch(self):
        self.model.train()
        total = torch.zeros(())
        for images, labels in self.training_batches:
            self.optimizer.zero_grad()
            loss = self.loss(images, labels)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(self.training_batches)

    @torch.inference_mode()
    def validate(self):
        self.model.eval()
        correct = 0
        for images, labels in self.validation_batches:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                correct += (self.model(images).argmax(dim=1) == labels).sum().item()
        return correct / (len(self.validation_batches) * self.validation_batches.batch_size)

    def fit(self):
        for epoch in range(self.config.epochs):
            loss = self.train_epoch()
            print(f"epoch {epoch}: loss {loss:.4f}, validation accuracy {self.validate():.3f}")


if __name__ == "__main__":
    Trainer(Config()).fit()
