"""Noisy spectra with one to three lines each."""

import torch
from torch.utils.data import Dataset

CHANNELS = 256


class Spectra(Dataset):
    def __init__(self, count, transform, seed=0):
        generator = torch.Generator().manual_seed(seed)
        channels = torch.arange(CHANNELS)
        self.lines = torch.randint(1, 4, (count,), generator=generator)
        self.values = 0.3 * torch.rand(count, CHANNELS, generator=generator)
        for row, lines in zip(self.values, self.lines.tolist(), strict=True):
            for centre in torch.randint(10, CHANNELS - 10, (lines,), generator=generator):
                row += torch.exp(-((channels - centre) ** 2) / 18.0)
        self.transform = transform

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.transform(self.values[index]), self.lines[index] - 1
