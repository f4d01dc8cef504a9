"""Every sample is a JPEG file that is decoded when it is asked for."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.jpg")) * 1000

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.files[index]) as image:
            small = np.asarray(image.resize((32, 32)), dtype=np.float32)
        return torch.from_numpy(small).permute(2, 0, 1) / 255, index % 10


def make_pictures(folder: Path) -> None:
    noise = np.random.default_rng(0)
    for number in range(64):
        coarse = Image.fromarray(noise.integers(0, 255, (16, 16, 3), dtype=np.uint8))
        coarse.resize((256, 256)).save(folder / f"{number}.jpg")


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    make_pictures(folder)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 28 * 28, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Pictures(folder), batch_size=16, shuffle=True)
    for images, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
