"""On a device: batches so small that it is mostly idle and its memory mostly free."""

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(12)), nn.Linear(512, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(8, 512, device=device), torch.randint(0, 8, (8,), device=device)
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
# Planted without a line: room-for-batch
