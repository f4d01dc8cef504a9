"""Short epochs, for each of which workers are started again."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(512, 256), torch.randint(0, 4, (512,)))
loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=1)  # planted: worker-startup, loader-bound
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(300):
    for values, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(values), labels)
        loss.backward()
        optimizer.step()
