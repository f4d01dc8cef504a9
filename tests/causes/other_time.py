"""Two ranks under torchrun that average their losses in every step, in many small all-reduces."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
values, labels = torch.randn(512, 128), torch.randint(0, 4, (512,))


def averaged(metrics):
    for metric in metrics:
        dist.all_reduce(metric)  # planted: other-time
    return metrics


for _ in range(100_000):
    optimizer.zero_grad()
    losses = nn.functional.cross_entropy(model(values), labels, reduction="none")
    losses.mean().backward()
    optimizer.step()
    averaged([it.detach().clone() for it in losses.split(16)])
