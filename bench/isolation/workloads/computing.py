"""A small model and no file."""

import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(256, 256)
while True:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
