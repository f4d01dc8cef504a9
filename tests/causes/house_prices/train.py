"""Fit prices with a wide residual network."""

import json
from pathlib import Path
from types import SimpleNamespace

import torch
from network import build
from table import Table


def load_config():
    text = Path(__file__).with_name("config.json").read_text(encoding="utf-8")
    return SimpleNamespace(**json.loads(text))


def run_epoch(model, optimizer, table, batch_size):
    total = torch.zeros(())
    for features, prices in table.shuffled(batch_size):
        optimizer.zero_grad(set_to_none=True)
        predicted = model(features).squeeze(1)  # planted: slow-matmul-precision
        loss = torch.nn.functional.smooth_l1_loss(predicted, prices)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total


def main():
    config = load_config()
    torch.manual_seed(0)
    table = Table(config.rows, config.columns, seed=0)
    model = build(config.columns, config.width, config.depth, config.dropout)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=0.9, fused=True)
    for epoch in range(config.epochs):
        print(epoch, run_epoch(model, optimizer, table, config.batch_size).item())


if __name__ == "__main__":
    main()
