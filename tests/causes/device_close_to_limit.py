"""On a device: all but a twentieth of its memory is in use."""

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(4096, 4096, device=device), torch.randint(0, 8, (4096,), device=device)
free, total = torch.cuda.mem_get_info()
table = torch.empty(max(0, free - total // 20), dtype=torch.uint8, device=device)
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
# Planted without a line: close-to-limit
