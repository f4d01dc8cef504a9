"""Training with an early stop by the loss on held-out sequences."""

import torch
from torch import nn
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model, train_set, held_out, batch_size=64, eval_every=25, lr=3e-3):
        self.model = model
        self.eval_every = eval_every
        self.train_set, self.batch_size = train_set, batch_size
        self.held_out = DataLoader(held_out)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
        self.step = 0
        self.history = []

    def batches(self):
        inputs, targets = self.train_set.tensors
        order = torch.randperm(len(inputs))
        for rows in order.split(self.batch_size):
            yield inputs[rows], targets[rows]

    def train(self, epochs):
        for _ in range(epochs):
            for inputs, targets in self.batches():
                self.model.train()
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(inputs), targets)
                loss.backward()
                self.optimizer.step()
                self.step += 1
                if self.step % self.eval_every == 0:
                    self.history.append(self.evaluate())

    def evaluate(self):
        self.model.eval()
        losses = []
        for inputs, targets in self.held_out:
            prediction = self.model(inputs)  # planted: evaluation-cost
            losses.append(nn.functional.mse_loss(prediction, targets).item())
        return sum(losses) / len(losses)
