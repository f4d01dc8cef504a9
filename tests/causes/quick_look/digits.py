"""Scikit-learn's handwritten digits."""

import torch
from sklearn.datasets import load_digits


def load(holdout=0.2):
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels)
    split = int(len(images) * (1 - holdout))
    return (images[:split], labels[:split]), (images[split:], labels[split:])
