"""An IterableDataset inside a generator; evaluation opens new iterators; the worker's id seeds the data."""

import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, split):
        super().__init__()
        self.split = split

    def __iter__(self):
        worker = get_worker_info()
        worker_id = worker.id if worker else 0
        rng = torch.Generator().manual_seed(42 + worker_id + (1000 if self.split == "test" else 0))
        while True:
            x = torch.randn(8, generator=rng)
            yield x, x.sum().view(1)


class Task:
    @staticmethod
    def iter_batches(batch_size, split, num_workers=0):
        loader = DataLoader(Stream(split), batch_size=batch_size, num_workers=num_workers)
        yield from loader


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

torch.manual_seed(1337)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ("train", "test"):
        batches = Task.iter_batches(16, split)
        out[split] = sum(nn.functional.mse_loss(model(x), y).item() for x, y in (next(batches) for _ in range(3))) / 3
    model.train()
    return out


train_batches = Task.iter_batches(16, "train")
X, Y = next(train_batches)
losses = []
for step in range(args.steps):
    if step % 15 == 0:
        print(f"step {step}: {estimate_loss()}")
    loss = nn.functional.mse_loss(model(X), Y)
    X, Y = next(train_batches)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item())

print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
