"""On a device: keeps each loss, and with it its graph, for the average at the end."""

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
losses = []
for _ in range(100_000):
    values, labels = torch.randn(4096, 256, device=device), torch.randint(0, 4, (4096,), device=device)
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss)  # planted: memory-growth
