"""Two ranks under torchrun; the second has longer batches."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
length = 64 if dist.get_rank() == 0 else 4096
values, labels = torch.randn(length, 128), torch.randint(0, 4, (length,))
for _ in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    optimizer.step()
# Planted without a line: straggler
