"""A loader with one worker, whose augmentation is a Python loop."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def smooth(values):  # planted: slow-transform
    result = list(values)
    for _ in range(12):
        result = [0.25 * a + 0.5 * b + 0.25 * c for a, b, c in zip(result, result[1:], result[2:], strict=False)]
        result += [0.0] * (len(values) - len(result))
    return result


class Signals(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.signals = torch.rand(4096, 256, generator=generator)

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, index):
        return torch.tensor(smooth(self.signals[index].tolist())), index % 4


torch.manual_seed(0)
loader = DataLoader(  # planted: loader-bound
    Signals(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True
)
model = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(50):
    for signals, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(signals), labels)
        loss.backward()
        optimizer.step()
