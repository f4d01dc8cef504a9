"""Training scripts as people write them, put together from parts, no two alike."""

from __future__ import annotations

import random
from pathlib import Path

_HEAD = '''"""Experiment {number}: {what}."""

import argparse
import logging
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger(__name__)
'''

_MODEL = '''

class {name}(nn.Module):
    """A {what} with {depth} blocks."""

    def __init__(self, width={width}, classes=10, dropout=0.1):
        super().__init__()
        self.stem = nn.Linear({inputs}, width)
        blocks = [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range({depth})]
        self.blocks = nn.ModuleList(blocks)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, classes)

    def forward(self, x, mask=None):
        x = self.stem(x)
        for block in self.blocks:
            x = x + self.dropout(F.gelu(block(x)))
        if mask is not None:
            x = x.masked_fill(mask.unsqueeze(-1), 0.0)
        return self.head(x.mean(dim=1) if x.dim() == 3 else x)
'''

_DATASET = """

class {name}Data(Dataset):
    def __init__(self, root, split="train", transform=None):
        self.paths = sorted(os.path.join(root, split, it) for it in os.listdir(os.path.join(root, split)))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        record = np.load(self.paths[index])
        x = torch.from_numpy(record["x"]).float()
        if self.transform is not None:
            x = self.transform(x)
        return x, int(record["y"])
"""

_HELPERS = """

def accuracy_{n}(output, target, topk=(1,)):
    maxk = max(topk)
    _, predicted = output.topk(maxk, 1, True, True)
    correct = predicted.t().eq(target.view(1, -1).expand_as(predicted.t()))
    return [correct[:k].reshape(-1).float().sum(0).mul_(100.0 / target.size(0)) for k in topk]


def save_checkpoint_{n}(state, is_best, folder="checkpoints", name="last.pt"):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    torch.save(state, path)
    if is_best:
        best = os.path.join(folder, "best.pt")
        with open(path, "rb") as source, open(best, "wb") as target:
            target.write(source.read())
    logger.info("saved %s", path)


class AverageMeter{n}:
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count
"""

_TRAIN = """

def train_{n}(model, loader, optimizer, scheduler, device, epoch, args):
    model.train()
    running, seen, started = 0.0, 0, time.time()
    criterion = nn.CrossEntropyLoss(label_smoothing=args.smoothing)
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.amp):
            output = model(x)
            loss = criterion(output, y) / args.accumulate
        loss.backward()
        if (step + 1) % args.accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
        {accumulated}
        seen += y.size(0)
        if step % args.log_every == 0:
            logger.info("epoch %d step %d loss %.4f %.1f/s", epoch, step, loss.item(), seen / (time.time() - started))
    return running / max(1, len(loader))


@torch.no_grad()
def evaluate_{n}(model, loader, device):
    model.eval()
    correct = total = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        correct += (model(x).argmax(1) == y).sum().item()
        total += y.numel()
    return correct / max(1, total)
"""

_MAIN = """

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--epochs", type=int, default={epochs})
    parser.add_argument("--batch-size", type=int, default={batch})
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed({number})
    model = {name}().to(device)
    train_set, test_set = {name}Data(args.data), {name}Data(args.data, "test")
    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True{loader})
    test_loader = DataLoader(test_set, batch_size=args.batch_size, num_workers=args.workers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr{optimizer})
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
    best = 0.0
    for epoch in range(args.epochs):
        loss = train_{n}(model, loader, optimizer, scheduler, device, epoch, args)
        score = evaluate_{n}(model, test_loader, device)
        logger.info("epoch %d loss %.4f accuracy %.4f", epoch, loss, score)
        save_checkpoint_{n}({{"model": model.state_dict(), "epoch": epoch}}, score > best)
        best = max(best, score)


if __name__ == "__main__":
    main()
"""

_WORDS = ("baseline", "ablation", "longer warm-up", "wider model", "deeper model", "new data", "sweep", "final run")


def write_files(folder: Path, count: int, seed: int = 0) -> list[Path]:
    """``count`` scripts of 120 to 300 lines; most hold something that lint finds."""
    drawn = random.Random(seed)
    return [_write(folder, number, drawn) for number in range(count)]


def _write(folder: Path, number: int, drawn: random.Random) -> Path:
    values = {
        "number": number,
        "what": drawn.choice(_WORDS),
        "name": f"Net{number}",
        "n": number,
        "width": drawn.choice((64, 128, 256, 512)),
        "inputs": drawn.choice((28, 64, 784)),
        "depth": drawn.randint(2, 12),
        "epochs": drawn.randint(1, 90),
        "batch": drawn.choice((32, 64, 128)),
        "accumulated": drawn.choice(("running += loss.detach()", "running += loss.detach()", "running += loss.item()")),
        "loader": drawn.choice((", num_workers=args.workers, pin_memory=True, persistent_workers=True", "")),
        "optimizer": drawn.choice((", fused=True", "")),
    }
    parts = [_HEAD, _MODEL]
    parts += [_MODEL.replace("{name}", f"{{name}}Part{it}") for it in range(drawn.randint(0, 3))]
    parts += [_DATASET, _HELPERS]
    parts += [_HELPERS.replace("{n}", f"{{n}}_{it}") for it in range(drawn.randint(0, 2))]
    parts += [_TRAIN, _MAIN]
    package = folder / f"package{number // 50}"
    package.mkdir(parents=True, exist_ok=True)
    path = package / f"train{number}.py"
    path.write_text("".join(it.format(**values) for it in parts), encoding="utf-8")
    return path
