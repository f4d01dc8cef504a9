"""Train on all ranks: torchrun --nproc-per-node 2 train.py"""

import torch
import torch.distributed as dist
from report import Report
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, width=512, batch_size=512):
        self.rank = dist.get_rank()
        torch.manual_seed(self.rank)
        layers = [nn.Linear(128, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 8)]
        self.model = DistributedDataParallel(nn.Sequential(*layers))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.report = Report(self.rank)
        self.batch_size = batch_size

    def step(self):
        values = torch.randn(self.batch_size, 128)
        labels = values[:, :8].argmax(dim=1)
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(self.model(values), labels)
        loss.backward()
        self.optimizer.step()
        self.report.describe(self.model)
        return loss.detach()

    def run(self, steps):
        for number in range(steps):
            loss = self.step()
            if number % 250 == 0 and self.rank == 0:
                print(f"{number}: {loss.item():.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer().run(50_000)
    dist.destroy_process_group()
