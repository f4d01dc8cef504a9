"""A controller that balances a pendulum, unrolled through a differentiable simulation."""

import torch
from torch import nn


class Pendulum:
    """Angle and speed of a pendulum with a motor."""

    def __init__(self, interval=0.05):
        self.interval = interval

    def advance(self, angle, speed, torque):
        speed = speed + self.interval * (9.81 * torch.sin(angle) + torque - 0.1 * speed)
        return angle + self.interval * speed, speed


class Controller(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, angle, speed):
        return 20 * torch.tanh(self.net(torch.stack([angle, speed], dim=1)).squeeze(1))
