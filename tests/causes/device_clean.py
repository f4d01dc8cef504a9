"""On a device, healthy: resident data, bfloat16, a fused optimizer, large matrices, losses read every fifty steps."""

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8)), nn.Linear(4096, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
values, labels = torch.randn(4096, 4096, device=device), torch.randint(0, 8, (4096,), device=device)
for step in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
