"""Train a small convolutional network on scikit-learn's handwritten digits.

    python -m hotlap.demo.digits --epochs 3

This is a script as people write it, and it knows nothing of hotlap. Each picture is prepared in Python whenever it is
wanted: enlarged, straightened and evened out, always in the same way.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage  # type: ignore[import-untyped]
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

Picture = NDArray[np.float64]


def enlarge(picture: Picture, size: int) -> Picture:
    """Resize a picture to ``size`` x ``size`` by cubic splines."""
    larger: Picture = ndimage.zoom(picture, size / len(picture), order=3)
    return larger.clip(min=0.0)


def straighten(picture: Picture) -> Picture:
    """Shear a picture upright and centre it by its image moments."""
    size = len(picture)
    rows, columns = np.mgrid[:size, :size]
    weight = picture / picture.sum()
    row, column = (weight * rows).sum(), (weight * columns).sum()
    slant = (weight * (rows - row) * (columns - column)).sum() / (weight * (rows - row) ** 2).sum()
    shear = np.array([[1.0, 0.0], [slant, 1.0]])
    offset = np.array([row, column]) - shear @ np.array([size / 2, size / 2])
    upright: Picture = ndimage.affine_transform(picture, shear, offset, order=3)
    return upright


def even_out(picture: Picture) -> Picture:
    """Normalise local brightness and contrast."""
    centred = picture - ndimage.gaussian_filter(picture, sigma=8)
    contrast = np.sqrt(ndimage.gaussian_filter(centred**2, sigma=8))
    evened: Picture = centred / np.maximum(contrast, 0.1)
    return evened


class Digits(Dataset[tuple[Tensor, int]]):
    """Digits of 8 x 8 pixels, each prepared at twice the wanted size and then averaged down."""

    def __init__(self, pictures: Picture, labels: NDArray[np.int64], size: int) -> None:
        self.pictures = pictures
        self.labels = labels
        self.size = size

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = even_out(straighten(enlarge(self.pictures[index] / 16, 2 * self.size)))
        picture = picture.reshape(self.size, 2, self.size, 2).mean(axis=(1, 3))
        return torch.from_numpy(picture.astype(np.float32))[None], int(self.labels[index])


class Network(nn.Module):
    """Four convolutions and a linear layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            self.stage(1, width),
            self.stage(width, 2 * width),
            self.stage(2 * width, 4 * width),
            self.stage(4 * width, 4 * width),
        )
        self.classify = nn.Linear(4 * width, 10)

    @staticmethod
    def stage(inputs: int, outputs: int) -> nn.Module:
        """A convolution that halves the picture."""
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
        )

    def forward(self, pictures: Tensor) -> Tensor:
        scores: Tensor = self.classify(self.features(pictures).mean(dim=(2, 3)))
        return scores


def accuracy(model: nn.Module, loader: DataLoader[tuple[Tensor, int]], device: torch.device) -> float:
    """Return the share of digits that the model classifies correctly."""
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for pictures, labels in loader:
            predicted = model(pictures.to(device)).argmax(dim=1)
            correct += int((predicted == labels.to(device)).sum())
            total += len(labels)
    return correct / total


def main() -> None:
    """Read the flags, train, and print the accuracy after each epoch."""
    parser = argparse.ArgumentParser(description="Train a small network on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=32, help="width and height of the prepared digits")
    parser.add_argument("--width", type=int, default=16, help="channels of the first convolution")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--label-smoothing", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=1, help="torch's own threads; the network is small")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    digits = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(digits.images, digits.target, test_size=97, random_state=0)
    train_loader = DataLoader(Digits(train_x, train_y, args.size), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(Digits(test_x, test_y, args.size), batch_size=args.batch_size)

    model = Network(args.width).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)

    for epoch in range(args.epochs):
        model.train()
        started = time.perf_counter()
        running_loss = 0.0
        for pictures, labels in train_loader:
            pictures, labels = pictures.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = criterion(model(pictures), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        seconds = time.perf_counter() - started
        mean_loss = running_loss / len(train_loader)
        print(
            f"epoch {epoch + 1}: loss {mean_loss:.4f}, accuracy {accuracy(model, test_loader, device):.4f}, "
            f"{1000 * seconds / len(train_loader):.1f} ms per step"
        )


if __name__ == "__main__":
    main()
