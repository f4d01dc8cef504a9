"""Healthy: a light dataset, one persistent worker with a core of its own, an average of losses as floats."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(16384, 512), torch.randint(0, 4, (16384,)))
loader = DataLoader(data, batch_size=128, shuffle=True, num_workers=1, persistent_workers=True)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for epoch in range(100):
    losses = []
    for values, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(values), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())  # hint: reads-in-every-step
    print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
