import torch
from torch import nn


def double(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(8, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.GroupNorm(8, outputs),
        nn.SiLU(),
    )


class UNet(nn.Module):
    """Predict the noise in a one-channel image, given the noise level."""

    def __init__(self, width):
        super().__init__()
        self.level = nn.Sequential(nn.Linear(1, 2 * width), nn.SiLU(), nn.Linear(2 * width, 2 * width))
        self.first = double(1, width)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.middle = double(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = nn.Sequential(double(2 * width, width), nn.Conv2d(width, 1, 1))

    def forward(self, images, level):
        high = self.first(images)
        low = self.middle(self.down(high))
        low = low + self.level(level[:, None])[:, :, None, None].to(low.dtype)
        return self.last(torch.cat([high, self.up(low)], dim=1))
