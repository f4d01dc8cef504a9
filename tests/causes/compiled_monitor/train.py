"""Train a compiled network on a synthetic signal."""

from dataclasses import dataclass

import torch
from blocks import Network


@dataclass(frozen=True)
class Config:
    inputs: int = 64
    width: int = 192
    depth: int = 3
    outputs: int = 16
    batch_size: int = 2048
    steps: int = 50_000
    compile: bool = True


def batch(config, mixing):
    inputs = torch.randn(config.batch_size, config.inputs)
    return inputs, torch.sin(inputs @ mixing)


def main(config):
    torch.manual_seed(0)
    network = Network(config.inputs, config.width, config.depth, config.outputs)
    model = torch.compile(network) if config.compile else network
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    mixing = torch.randn(config.inputs, config.outputs) / 8
    for step in range(config.steps):
        inputs, targets = batch(config, mixing)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(inputs)
        loss = torch.nn.functional.mse_loss(outputs.float(), targets)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"{step}: loss {loss.item():.4f}, largest activation {network.watch.largest:.1f}")


if __name__ == "__main__":
    main(Config())
