"""On a device: reads the norm of every weight's gradient in every step, one after the other."""

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(24)), nn.Linear(2048, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(2048, 2048, device=device), torch.randint(0, 8, (2048,), device=device)
weights = [it for it in model.parameters() if it.dim() > 1]
total = 0.0
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    total += sum(it.grad.norm().item() for it in weights)  # planted: host-sync
    optimizer.step()
