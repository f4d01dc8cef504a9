"""Classify measurements; all settings are in config.py."""

import torch
from config import Config
from data import build_loader
from torch import nn


def build_model(features, config):
    return nn.Sequential(
        nn.Linear(features, config.hidden),
        nn.ReLU(),
        nn.Linear(config.hidden, config.hidden),
        nn.ReLU(),
        nn.Linear(config.hidden, config.classes),
    )


def run(config):
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.threads)
    loader = build_loader(config.data, config.model.classes)
    model = build_model(config.data.features, config.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9, fused=True)
    for _ in range(config.epochs):
        for values, labels in loader:
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(values), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    run(Config())
