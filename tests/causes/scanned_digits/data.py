"""Handwritten digits as JPEG files, as from a scanner."""

import io

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import Dataset

SCANNED, USED = 128, 32


def scan(image):
    """Encode a digit as a JPEG file."""
    picture = Image.fromarray((image * 15).astype(np.uint8)).resize((SCANNED, SCANNED), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


class ScannedDigits(Dataset):
    def __init__(self):
        digits = load_digits()
        self.files = [scan(image) for image in digits.images]
        self.labels = digits.target.tolist()

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.read(index), self.labels[index]

    def read(self, index):
        picture = Image.open(io.BytesIO(self.files[index]))
        picture = picture.convert("RGB").resize((USED, USED), Image.Resampling.LANCZOS)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
        return pixels.float() / 255 - 0.5
