"""On a device: a vocabulary whose size Tensor Cores are not aligned to."""

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 50257)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(4096, 768, device=device), torch.randint(0, 50257, (4096,), device=device)
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
# Planted without a line: unaligned-sizes
