"""Samples stored in one file each."""

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset


def write_samples(folder, count, shape):
    """Write ``count`` compressed files; returns their paths."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(count):
        label = number % 5
        values = random.normal(label, 1.0, shape).round(1).astype(np.float32)
        paths.append(Path(folder, f"{number:05d}.npz"))
        np.savez_compressed(paths[-1], values=values, label=label)
    return paths


class FileSamples(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with np.load(self.paths[index]) as stored:
            return torch.from_numpy(stored["values"]), int(stored["label"])


class PackedSamples(Dataset):
    """The same samples, read once and kept in memory."""

    def __init__(self, paths):
        files = FileSamples(paths)
        self.samples = [files[index] for index in range(len(files))]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]
