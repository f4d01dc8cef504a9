"""Laboratory values of patients; some were entered in another unit."""

import torch


class Records:
    def __init__(self, patients, values, mistakes, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.values = torch.randn(patients, values, generator=generator)
        weights = torch.randn(values, generator=generator) / values**0.5
        self.risk = self.values @ weights + 0.1 * torch.randn(patients, generator=generator)
        wrong = torch.randperm(patients, generator=generator)[:mistakes]
        self.risk[wrong] *= 1000.0
        self.generator = generator

    def __len__(self):
        return len(self.values)

    def batches(self, size):
        for rows in torch.randperm(len(self), generator=self.generator).split(size):
            yield self.values[rows], self.risk[rows]
