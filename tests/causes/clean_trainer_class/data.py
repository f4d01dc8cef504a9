"""The digits of scikit-learn, shifted by up to one pixel: all in memory, batches are slices of tensors."""

import torch
from sklearn.datasets import load_digits


class ResidentBatches:
    """Batches of tensors in memory, in a new order in every epoch."""

    def __init__(self, images, labels, batch_size, shuffle):
        self.images, self.labels = images, labels
        self.batch_size = batch_size
        self.shuffle = shuffle

    def __len__(self):
        return len(self.labels) // self.batch_size

    def __iter__(self):
        order = torch.randperm(len(self.labels)) if self.shuffle else torch.arange(len(self.labels))
        for index in order.split(self.batch_size)[: len(self)]:
            yield self.images[index], self.labels[index]


def shifted(images):
    moves = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    return torch.cat([images.roll(move, dims=(1, 2)) for move in moves])


def make_batches(batch_size):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[256:], order[:256]
    training = ResidentBatches(shifted(images[train]).flatten(1), labels[train].repeat(9), batch_size, shuffle=True)
    return training, ResidentBatches(images[test].flatten(1), labels[test], 256, shuffle=False)
