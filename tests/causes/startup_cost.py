"""A short run that tokenises its text at start-up."""

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def tokens(lines):
    found = []
    for line in lines:
        found += [len(word.lower().strip(".,;")) * 7 % 512 for word in line.split()]  # planted: startup-cost
    return torch.tensor(found[:40_000])


words = tokens([" ".join(f"word{it}" for it in range(9000))] * 2400)
model = nn.Sequential(nn.Embedding(512, 64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for step in range(60):
    batch = words[step * 512 : (step + 1) * 512 + 1]
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch[:-1]), batch[1:]).backward()
    optimizer.step()
