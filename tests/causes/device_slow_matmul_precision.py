"""On a device: large products in full float32."""

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(4)), nn.Linear(4096, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(4096, 4096, device=device), torch.randint(0, 8, (4096,), device=device)
for _ in range(100_000):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(values), labels)  # planted: slow-matmul-precision
    loss.backward()
    optimizer.step()
