"""Classify source code by its bytes: four micro-batches per step, clipped gradients, a one-cycle schedule."""

import sysconfig
from pathlib import Path

import torch
from model import ByteClassifier
from torch import nn

PACKAGES = ("asyncio", "email", "importlib", "logging", "multiprocessing", "xml")
LENGTH, MICRO_BATCH, ACCUMULATE, STEPS = 128, 8, 4, 40_000


def load_blocks():
    library = Path(sysconfig.get_paths()["stdlib"])
    blocks, labels = [], []
    for label, package in enumerate(PACKAGES):
        text = b"".join(path.read_bytes() for path in sorted((library / package).rglob("*.py")))
        rows = len(text) // LENGTH
        blocks.append(torch.frombuffer(bytearray(text[: rows * LENGTH]), dtype=torch.uint8).view(rows, LENGTH))
        labels.append(torch.full((rows,), label))
    return torch.cat(blocks).long(), torch.cat(labels)


def micro_batches(blocks, labels):
    """Yield micro-batches endlessly, shuffled in every epoch."""
    while True:
        for index in torch.randperm(len(labels)).split(MICRO_BATCH):
            if len(index) == MICRO_BATCH:
                yield blocks[index], labels[index]


def accumulate(model, batches):
    """Accumulate gradients over several micro-batches; return their mean loss."""
    total = torch.zeros(())
    for _ in range(ACCUMULATE):
        values, labels = next(batches)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(values), labels) / ACCUMULATE
        loss.backward()
        total += loss.detach()
    return total


def main():
    torch.manual_seed(11)
    blocks, labels = load_blocks()
    model = ByteClassifier(LENGTH, width=192, layers=2, classes=len(PACKAGES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=STEPS)
    batches = micro_batches(blocks, labels)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = accumulate(model, batches)
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        schedule.step()
        if step % 25 == 0:
            print(f"step {step}: loss {loss.item():.3f}, gradient norm {norm.item():.2f}")


if __name__ == "__main__":
    main()
