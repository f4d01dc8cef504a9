"""Running averages of a training run."""

import torch


class Meter:
    """Keep every value of a run, and average the last ones."""

    def __init__(self, name, window=50):
        self.name = name
        self.window = window
        self.values = []

    def add(self, value):
        self.values.append(value)  # planted: memory-growth

    def average(self):
        recent = self.values[-self.window :]
        return torch.stack(recent).mean().item() if recent else float("nan")


class Meters:
    def __init__(self, *names):
        self.meters = {name: Meter(name) for name in names}

    def add(self, **values):
        for name, value in values.items():
            self.meters[name].add(value)

    def __str__(self):
        return ", ".join(f"{name} {meter.average():.3f}" for name, meter in self.meters.items())
