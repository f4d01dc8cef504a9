"""An image classifier: the script; the loop is in engine.py."""

import argparse

import torch
from engine import evaluate, train_one_epoch
from losses import build_criterion
from model import SmallNet
from torch.utils.data import DataLoader
from torchvision.datasets import FakeData
from torchvision.transforms import ToTensor


def main(args):
    device = torch.device(args.device)
    model = SmallNet().to(device)
    criterion = build_criterion(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    train = DataLoader(FakeData(transform=ToTensor()), batch_size=32, num_workers=4, persistent_workers=True)
    test = DataLoader(FakeData(transform=ToTensor()), batch_size=32, num_workers=4, persistent_workers=True)
    best = 0.0
    for epoch in range(args.epochs):
        train_one_epoch(model, criterion, optimizer, train, device, epoch)
        accuracy = evaluate(model, criterion, test, device)
        if accuracy > best:
            best = accuracy
            torch.save(model.state_dict(), "best.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--smoothing", type=float, default=0.0)
    main(parser.parse_args())
