"""Train on the 1797 digits, with very short epochs."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset
from trainer import Trainer


class Digits(Dataset):
    def __init__(self, augment=0.1):
        digits = load_digits()
        self.images = digits.images.astype(np.float32) / 16
        self.labels = digits.target
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index])
        return image + self.augment * torch.randn_like(image), int(self.labels[index])


def build_model():
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 24, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48 * 16, 10),
    )


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium")
    loader = DataLoader(Digits(), batch_size=128, shuffle=True, num_workers=1)  # planted: worker-startup, loader-bound
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    best = Trainer(model, optimizer, loader).fit(epochs=2000)
    print(f"best loss {best:.4f}")


if __name__ == "__main__":
    main()
