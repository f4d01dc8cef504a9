"""Predict a patient's risk from laboratory values."""

from dataclasses import dataclass

import torch
from records import Records
from torch import nn


@dataclass
class Options:
    patients: int = 32_768
    values: int = 128
    mistakes: int = 4
    width: int = 512
    batch_size: int = 512
    learning_rate: float = 1e-5
    epochs: int = 1000


class Learner:
    def __init__(self, options):
        self.options = options
        width = options.width
        self.model = nn.Sequential(
            nn.Linear(options.values, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.learning_rate, fused=True)

    def learn(self, values, risk):
        with torch.autocast("cpu", torch.bfloat16):
            predicted = self.model(values).squeeze(1)
        loss = nn.functional.mse_loss(predicted.float(), risk)
        self.optimizer.zero_grad()
        loss.backward()  # planted: gradient-spikes
        self.optimizer.step()
        return loss.detach()


def main(options):
    torch.manual_seed(0)
    records = Records(options.patients, options.values, options.mistakes)
    learner = Learner(options)
    for epoch in range(options.epochs):
        losses = [learner.learn(*batch) for batch in records.batches(options.batch_size)]
        print(f"epoch {epoch}: median loss {torch.stack(losses).median().item():.3f}")


if __name__ == "__main__":
    main(Options())
