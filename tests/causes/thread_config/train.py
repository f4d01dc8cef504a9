"""A small convolutional classifier of random textures, on a server with many cores."""

import torch
from config import Config
from torch import nn


def build(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.GELU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 4),
    )


def textures(count):
    labels = torch.randint(4, (count,))
    noise = torch.randn(count, 3, 24, 24)
    return noise.cumsum(dim=2) * (labels >= 2)[:, None, None, None] + noise * (1 + labels % 2)[
        :, None, None, None
    ], labels


def main(config):
    config.apply()
    images, labels = textures(2048)
    model = build(config.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=0.9, fused=True)
    for step in range(config.steps):
        rows = torch.randint(len(images), (config.batch_size,))
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main(Config.from_command_line())
