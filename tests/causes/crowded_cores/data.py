"""Photographs of cells, as JPEG files."""

import io

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

TAKEN, USED = 224, 64


def photograph(generator, kind):
    """Encode a coloured texture, coarser for some kinds of cells than for others."""
    coarse = generator.integers(0, 255, (16 + 8 * kind, 16 + 8 * kind, 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize((TAKEN, TAKEN), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


class Cells(Dataset):
    def __init__(self, photographs=768, kinds=4):
        generator = np.random.default_rng(0)
        self.labels = [index % kinds for index in range(photographs)]
        self.files = [photograph(generator, kind) for kind in self.labels]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.read(index), self.labels[index]

    def read(self, index):
        picture = Image.open(io.BytesIO(self.files[index]))
        picture = picture.convert("RGB").resize((USED, USED), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
