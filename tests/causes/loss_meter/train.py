"""Train a classifier of digits; print averages of its loss and of its activations."""

import torch
from metrics import Meters
from sklearn.datasets import load_digits
from torch import nn


class Classifier(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        hidden = self.body(images)
        return self.head(hidden), hidden


def main(steps=200_000, batch_size=256):
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    meters = Meters("loss", "activity")
    for step in range(steps):
        rows = torch.randint(len(images), (batch_size,))
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            logits, hidden = model(images[rows])
            loss = nn.functional.cross_entropy(logits, labels[rows])
        loss.backward()
        optimizer.step()
        meters.add(loss=loss.detach(), activity=hidden.float().square().mean())
        if step % 500 == 0:
            print(f"step {step}: {meters}")


if __name__ == "__main__":
    main()
