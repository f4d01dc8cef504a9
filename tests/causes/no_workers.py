"""JSON records that the training process itself parses."""

import json

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.lines = [json.dumps(row.tolist()) for row in torch.rand(256, 1024, generator=generator)]

    def __len__(self):
        return 16 * len(self.lines)

    def __getitem__(self, index):
        values = json.loads(self.lines[index % len(self.lines)])
        return torch.tensor(values), index % 4


torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(Records(), batch_size=64, shuffle=True)  # planted: no-workers, loader-bound
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(50):
    for values, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(values), labels)
        loss.backward()
        optimizer.step()
