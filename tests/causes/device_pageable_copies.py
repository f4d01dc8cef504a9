"""On a device: large batches from pageable memory."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")
torch.manual_seed(0)
data = TensorDataset(torch.randn(128, 3, 512, 512), torch.randint(0, 8, (128,)))
loader = DataLoader(data, batch_size=16, num_workers=2, persistent_workers=True)  # planted: pageable-copies
model = nn.Sequential(nn.Conv2d(3, 8, 7, stride=4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(1000):
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
