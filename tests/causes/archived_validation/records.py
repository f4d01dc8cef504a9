"""Sensor records: the training part in memory, the validation part in compressed archives."""

import zlib

import numpy as np
import torch
from torch.utils.data import Dataset

LENGTH = 2048


def simulate(count, seed):
    random = np.random.default_rng(seed)
    times = np.linspace(0, 1, LENGTH)
    labels = random.integers(0, 4, count)
    noise = random.normal(0, 0.5, (count, LENGTH))
    return (np.sin(2 * np.pi * np.outer(labels + 2, times)) + noise).astype(np.float32), labels


class ArchivedRecords(Dataset):
    """Records stored as compressed text."""

    def __init__(self, count, seed):
        values, self.labels = simulate(count, seed)
        self.archive = [zlib.compress(" ".join(f"{it:.4f}" for it in row).encode()) for row in values]

    def __len__(self):
        return len(self.archive)

    def __getitem__(self, index):
        text = zlib.decompress(self.archive[index]).decode()
        return torch.tensor([float(it) for it in text.split()]), int(self.labels[index])
