"""A denoising diffusion model of digits, with a moving average of its weights."""

import argparse
import math

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from unet import UNet


def load_images():
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    return nn.functional.interpolate(images, size=16, mode="bilinear")


class Diffusion:
    """Noise by a cosine schedule (Nichol and Dhariwal, 2021)."""

    def __init__(self, model):
        self.model = model

    def loss(self, images):
        time = torch.rand(len(images))
        signal = torch.cos(0.5 * math.pi * time).view(-1, 1, 1, 1)
        noise = torch.randn_like(images)
        mixed = signal * images + (1 - signal**2).sqrt() * noise
        with torch.autocast("cpu", dtype=torch.bfloat16):
            predicted = self.model(mixed, time)
        return nn.functional.mse_loss(predicted.float(), noise)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--average-every", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(5)
    images = load_images()
    model = UNet(args.width)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    diffusion = Diffusion(model)
    for step in range(args.steps):
        batch = images[torch.randint(len(images), (args.batch_size,))]
        loss = diffusion.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.average_every == 0:
            average.update_parameters(model)
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
