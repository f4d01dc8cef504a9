from torch import nn


class Generator(nn.Sequential):
    def __init__(self, noise, width):
        super().__init__(
            nn.Linear(noise, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 256),
            nn.Tanh(),
        )


class Critic(nn.Sequential):
    def __init__(self, width):
        super().__init__(
            nn.Linear(256, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, 1),
        )
