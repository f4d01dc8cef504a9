"""A small vision transformer on enlarged digits, with accelerate."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from model import PatchClassifier
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def load_images(side):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    return functional.interpolate(images, size=side, mode="bilinear")[:, 0], torch.tensor(digits.target)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--warmup-steps", type=int, default=200)
    args = parser.parse_args()

    set_seed(7)
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)
    loader = DataLoader(TensorDataset(*load_images(args.side)), batch_size=32, shuffle=True, drop_last=True)
    model = PatchClassifier(args.side, patch=4, width=args.width, depth=args.depth, heads=3, classes=10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / args.warmup_steps))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

    for epoch in range(args.epochs):
        running = torch.zeros((), device=accelerator.device)
        for images, labels in loader:
            loss = functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            running += loss.detach()
        accelerator.print(f"epoch {epoch}: loss {running.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
