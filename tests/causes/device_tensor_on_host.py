"""On a device: large noise is drawn on the host and then copied, in every step."""

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(4096, 1024, device=device), torch.randint(0, 8, (4096,), device=device)
for _ in range(100_000):
    noise = torch.randn(4096, 1024).to(device)  # planted: tensor-on-host
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values + 0.1 * noise), labels)
    loss.backward()
    optimizer.step()
