"""Train a convolutional network on scikit-learn's digits; a checkpoint after each epoch."""

import tempfile
from pathlib import Path

import torch
from network import DigitNet
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

CONFIG = {
    "model": {"widths": [32, 64, 128], "classes": 10},
    "data": {"side": 32, "batch_size": 64},
    "optimizer": {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True, "fused": True},
    "epochs": 100,
}


class Digits(Dataset):
    """Images indexed by whole batches."""

    def __init__(self, side):
        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
        self.images = nn.functional.interpolate(images, size=side).to(memory_format=torch.channels_last)
        self.labels = torch.tensor(digits.target)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, indices):
        return self.images[indices], self.labels[indices]


def save(folder, epoch, model, optimizer):
    state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, folder / "last.pt")


def main(config, folder):
    torch.manual_seed(0)
    dataset = Digits(config["data"]["side"])
    sampler = BatchSampler(RandomSampler(dataset), config["data"]["batch_size"], drop_last=True)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None)
    model = DigitNet(**config["model"]).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), **config["optimizer"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config["epochs"])
    for epoch in range(config["epochs"]):
        for images, labels in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        schedule.step()
        save(folder, epoch, model, optimizer)
        print(f"epoch {epoch:3d}  loss {loss.item():.4f}  lr {schedule.get_last_lr()[0]:.4f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as checkpoints:
        main(CONFIG, Path(checkpoints))
