"""An autoencoder of strided and transposed convolutions."""

from torch import nn


def down(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU()
    )


def up(inputs, outputs):
    return nn.Sequential(
        nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.SiLU()
    )


class Autoencoder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encoder = nn.Sequential(down(1, width), down(width, 2 * width), down(2 * width, 2 * width))
        self.decoder = nn.Sequential(up(2 * width, 2 * width), up(2 * width, width), up(width, width))
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, images):
        return self.out(self.decoder(self.encoder(images)))
