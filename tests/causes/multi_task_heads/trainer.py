"""The training loop."""

import torch
from torch.nn import functional as F


class Trainer:
    def __init__(self, model, config):
        self.model = model
        self.config = config
        self.optimizer = self.build_optimizer()
        self.step = 0

    def build_optimizer(self):
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        return torch.optim.Adam(parameters, lr=self.config.learning_rate, foreach=False)  # planted: unfused-optimizer

    def train_step(self, features, targets):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            predictions = self.model(features)
        loss = F.mse_loss(predictions.float(), targets)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def fit(self, features, targets):
        for epoch in range(self.config.epochs):
            total = torch.zeros(())
            for rows in torch.randperm(len(features)).split(self.config.batch_size):
                total += self.train_step(features[rows], targets[rows])
            print(f"epoch {epoch}: {total.item() / self.step:.4f}")
