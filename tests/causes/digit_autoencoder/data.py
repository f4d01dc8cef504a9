"""Handwritten digits of scikit-learn, enlarged."""

import torch
from sklearn.datasets import load_digits


def load(size):
    images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16
    return torch.nn.functional.interpolate(images, size=(size, size), mode="bilinear")
