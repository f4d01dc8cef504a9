"""One batch in ten takes long; the worker keeps up on average, but its queue of two batches runs empty."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, SLOW_SECONDS = 8, 0.12


class Records(Dataset):
    def __len__(self):
        return 80 * BATCH

    def __getitem__(self, index):
        if index % (10 * BATCH) == 5 * BATCH:
            time.sleep(SLOW_SECONDS)
        return torch.full((512,), index / len(self)), index % 4


torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(Records(), batch_size=BATCH, num_workers=1, persistent_workers=True)  # planted: short-queue
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(100):
    for values, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(values.repeat(16, 1)), labels.repeat(16))
        loss.backward()
        optimizer.step()
