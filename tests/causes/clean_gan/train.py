"""A generative adversarial network for digits of 16 x 16 pixels: critic and generator train alternately."""

import argparse
from dataclasses import dataclass

import torch
from networks import Critic, Generator
from sklearn.datasets import load_digits
from torch.nn import functional


@dataclass
class Settings:
    batch_size: int = 256
    noise: int = 128
    width: int = 1024
    learning_rate: float = 2e-4
    steps: int = 100_000


def real_images():
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    return functional.interpolate(images, scale_factor=2).flatten(1)


class Game:
    def __init__(self, settings):
        self.settings = settings
        self.images = real_images()
        self.generator = Generator(settings.noise, settings.width)
        self.critic = Critic(settings.width)
        adam = {"lr": settings.learning_rate, "betas": (0.5, 0.999), "fused": True}
        self.generator_optimizer = torch.optim.Adam(self.generator.parameters(), **adam)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), **adam)

    def noise(self):
        return torch.randn(self.settings.batch_size, self.settings.noise)

    def train_critic(self, real):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                fake = self.generator(self.noise())
            scores = self.critic(torch.cat([real, fake.float()])).float()
            true, false = scores.chunk(2)
            loss = functional.softplus(-true).mean() + functional.softplus(false).mean()
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        return loss.detach()

    def train_generator(self):
        self.critic.requires_grad_(False)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = self.critic(self.generator(self.noise())).float()
            loss = functional.softplus(-scores).mean()
        self.generator_optimizer.zero_grad()
        loss.backward()
        self.generator_optimizer.step()
        self.critic.requires_grad_(True)
        return loss.detach()

    def play(self):
        for step in range(self.settings.steps):
            chosen = torch.randint(len(self.images), (self.settings.batch_size,))
            critic_loss = self.train_critic(self.images[chosen])
            generator_loss = self.train_generator()
            if step % 100 == 0:
                print(f"step {step}: critic {critic_loss.item():.3f}, generator {generator_loss.item():.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    Game(Settings()).play()


if __name__ == "__main__":
    main()
