"""Train a mixer with the settings of settings.ini."""

from configparser import ConfigParser
from pathlib import Path

import torch
from mixer import MixerNet
from torch.nn import functional as F


def settings():
    config = ConfigParser()
    config.read(Path(__file__).with_name("settings.ini"), encoding="utf-8")
    return config


def prepare(debug):
    torch.manual_seed(0)
    torch.autograd.set_detect_anomaly(debug.getboolean("detect_anomaly"))  # planted: anomaly-detection


def main():
    config = settings()
    prepare(config["debug"])
    training = config["training"]
    model = MixerNet(config.getint("model", "width"), config.getint("model", "blocks"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.getfloat("learning_rate"), fused=True)
    for step in range(training.getint("steps")):
        images = torch.randn(training.getint("batch_size"), 3, 32, 32)
        labels = images.flatten(1)[:, :10].argmax(dim=1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % config.getint("debug", "print_every") == 0:
            print(f"step {step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
