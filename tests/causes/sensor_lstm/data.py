"""Recordings of three sensors: waves whose frequency is the class."""

import math

import torch


def recordings(samples, length, channels, classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=generator)
    time = torch.linspace(0, 4 * math.pi, length)
    phase = 2 * math.pi * torch.rand(samples, 1, channels, generator=generator)
    waves = torch.sin(time[None, :, None] * (1 + labels[:, None, None]) + phase)
    return waves + 0.3 * torch.randn(samples, length, channels, generator=generator), labels
