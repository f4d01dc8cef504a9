"""Train an autoencoder to remove noise from digits."""

import argparse

import torch
from data import load
from model import Autoencoder


class Training:
    def __init__(self, arguments):
        self.arguments = arguments
        self.images = load(arguments.size)
        self.model = Autoencoder()
        self.criterion = torch.nn.MSELoss()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=arguments.learning_rate, fused=True)

    def step(self, images):
        noisy = images + self.arguments.noise * torch.randn_like(images)
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            restored = self.model(noisy)  # planted: bias-before-norm
        loss = self.criterion(restored.float(), images)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self):
        for epoch in range(self.arguments.epochs):
            for rows in torch.randperm(len(self.images)).split(self.arguments.batch_size):
                loss = self.step(self.images[rows])
            print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--noise", type=float, default=0.3)
    torch.manual_seed(0)
    Training(parser.parse_args()).run()
