"""No DataLoader: an own get_batch() from a memory-mapped file; the next batch is fetched before backward."""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

max_iters = int(sys.argv[1]) if len(sys.argv) > 1 else 60
batch_size = 8
block_size = 32
torch.manual_seed(1337)

folder = tempfile.TemporaryDirectory()
np.random.default_rng(0).integers(0, 64, 20_000).astype(np.uint16).tofile(Path(folder.name) / "train.bin")


def get_batch():
    data = np.memmap(Path(folder.name) / "train.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, 32)
        self.rnn = nn.GRU(32, 32, batch_first=True)
        self.head = nn.Linear(32, 64)

    def forward(self, idx, targets):
        hidden, _ = self.rnn(self.embedding(idx))
        logits = self.head(hidden)
        return logits, F.cross_entropy(logits.view(-1, 64), targets.view(-1))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

losses = []
X, Y = get_batch()
iter_num = 0
while iter_num < max_iters:
    logits, loss = model(X, Y)
    X, Y = get_batch()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item())
    iter_num += 1

print(json.dumps({"steps": iter_num, "losses": losses[:10] + losses[-1:]}))
