"""Measurements with a few missing values."""

import torch
from torch.utils.data import DataLoader, Dataset


class Measurements(Dataset):
    def __init__(self, samples, features, classes):
        generator = torch.Generator().manual_seed(0)
        self.values = torch.randn(samples, features, generator=generator)
        self.values[torch.rand(samples, features, generator=generator) < 0.02] = float("nan")
        self.labels = torch.randint(classes, (samples,), generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.values[index].nan_to_num(), self.labels[index]


def build_loader(config, classes):
    data = Measurements(config.samples, config.features, classes)
    return DataLoader(  # planted: loader-bound, too-many-workers
        data, batch_size=config.batch_size, shuffle=True, num_workers=config.num_workers
    )
