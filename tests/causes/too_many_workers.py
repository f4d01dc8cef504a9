"""Sixteen workers for a dataset that one worker loads fast enough."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(8192, 512), torch.randint(0, 4, (8192,)))
loader = DataLoader(  # planted: too-many-workers
    data, batch_size=32, shuffle=True, num_workers=16, persistent_workers=True
)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(50):
    for values, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(values), labels)
        loss.backward()
        optimizer.step()
