"""Transforms applied to a spectrum."""

import torch


class Compose:
    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, values):
        for transform in self.transforms:
            values = transform(values)
        return values


class Baseline:
    """Subtract the smallest value."""

    def __call__(self, values):
        return values - values.min()


class Smooth:
    """A weighted moving average over ``2 * radius + 1`` channels."""

    def __init__(self, radius):
        weights = torch.hann_window(2 * radius + 3)[1:-1]
        self.radius = radius
        self.weights = (weights / weights.sum()).tolist()

    def __call__(self, values):  # planted: slow-transform
        padded = [0.0] * self.radius + values.tolist() + [0.0] * self.radius
        smoothed = []
        for start in range(len(values)):
            total = 0.0
            for offset, weight in enumerate(self.weights):
                total += weight * padded[start + offset]
            smoothed.append(total)
        return torch.tensor(smoothed)


class Normalise:
    """Scale to unit variance."""

    def __call__(self, values):
        return values / values.std().clamp(min=1e-6)
