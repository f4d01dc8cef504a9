"""On a device: each sample is moved and normalised there one by one."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

if not torch.cuda.is_available():
    raise SystemExit("This script needs an accelerator.")
device = torch.device("cuda")


class Images(Dataset):
    def __init__(self):
        self.images = torch.randn(512, 3, 64, 64)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].to(device)  # planted: accelerator-in-dataset
        return (image - image.mean()) / image.std(), index % 8


torch.manual_seed(0)
loader = DataLoader(Images(), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(1000):
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels.to(device))
        loss.backward()
        optimizer.step()
