"""Meters that read the loss between forward and backward, and one that keeps tensors."""

import argparse
import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class AverageMeter:
    def __init__(self):
        self.values = []
        self.sum = 0
        self.count = 0

    def update(self, value, n=1):
        self.values.append(value)
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count


class RandomImages(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(3)
        self.images = torch.randn(size, 3, 8, 8, generator=generator)
        self.labels = torch.randint(5, (size,), generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def accuracy(output, target, topk=(1, 3)):
    with torch.no_grad():
        _, predicted = output.topk(max(topk), 1)
        correct = predicted.eq(target.view(-1, 1))
        return [correct[:, :k].any(1).float().mean() for k in topk]


def train(train_loader, model, criterion, optimizer, meters):
    model.train()
    end = time.time()
    for images, target in train_loader:
        meters["data"].update(time.time() - end)
        output = model(images)
        loss = criterion(output, target)
        acc1, acc3 = accuracy(output, target)
        meters["loss"].update(loss.item(), images.size(0))
        meters["acc1"].update(acc1, images.size(0))
        meters["acc3"].update(acc3, images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meters["batch"].update(time.time() - end)
        end = time.time()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    train_loader = DataLoader(RandomImages(16 * args.steps // 2), batch_size=16, shuffle=True)
    meters = {name: AverageMeter() for name in ("batch", "data", "loss", "acc1", "acc3")}
    for epoch in range(2):
        train(train_loader, model, criterion, optimizer, meters)
        print(f"epoch {epoch} loss {meters['loss'].avg:.4f} acc@1 {float(meters['acc1'].avg):.3f}")
    losses = meters["loss"].values
    print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))


if __name__ == "__main__":
    main()
