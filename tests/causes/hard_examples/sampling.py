"""Batches in which hard examples are more frequent."""

import random

from torch.utils.data import Sampler


class HardExampleSampler(Sampler):
    """Draw batches with each example's last known loss as its weight."""

    def __init__(self, count, batch_size, seed=0):
        self.losses = [1.0] * count
        self.batch_size = batch_size
        self.random = random.Random(seed)

    def __len__(self):
        return len(self.losses) // self.batch_size

    def __iter__(self):
        for _ in range(len(self)):
            yield self.draw()

    def draw(self):
        mean = sum(self.losses) / len(self.losses)
        weights = [0.1 + min(loss / mean, 4.0) for loss in self.losses]  # planted: slow-sampler
        return self.random.choices(range(len(weights)), weights, k=self.batch_size)

    def update(self, indices, losses):
        for index, loss in zip(indices, losses, strict=True):
            self.losses[index] = 0.5 * self.losses[index] + 0.5 * loss
