"""On a device: convolutions of one shape, without benchmarking their algorithms."""

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 64, 7, stride=2, bias=False),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.Conv2d(64, 128, 3, stride=2, bias=False),
    nn.BatchNorm2d(128),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(128, 8),
).to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
images = torch.randn(128, 3, 128, 128, device=device).to(memory_format=torch.channels_last)
labels = torch.randint(0, 8, (128,), device=device)
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
# Planted without a line: cudnn-benchmark-off
