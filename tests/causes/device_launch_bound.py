"""On a device: hundreds of tiny layers."""

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(200)), nn.Linear(32, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(32, 32, device=device), torch.randint(0, 8, (32,), device=device)
for _ in range(100_000):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
# Planted without a line: launch-bound
