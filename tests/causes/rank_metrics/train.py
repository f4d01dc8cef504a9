"""Data-parallel training with per-class accuracy: torchrun --nproc-per-node 2 train.py"""

import argparse

import torch
import torch.distributed as dist
from metrics import ClassAccuracy
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def batch(size, classes):
    values = torch.randn(size, 96)
    return values, values[:, :classes].argmax(dim=1)


def train(options):
    torch.manual_seed(dist.get_rank())
    layers = [nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, options.classes)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=True)
    accuracy = ClassAccuracy(options.classes)
    for step in range(options.steps):
        values, labels = batch(options.batch_size, options.classes)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(values)
            loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        accuracy.update(logits.argmax(dim=1), labels)
        if step % 500 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {min(accuracy.compute()):.3f} in the worst class")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=50_000)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(parser.parse_args())
    dist.destroy_process_group()
