"""Started by torchrun with two gloo processes; as in Accelerate, the scheduler steps once for each process."""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(100 + rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=world_size * args.steps)
    losses = []
    for _ in range(args.steps):
        x = torch.randn(8, 10)
        loss = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for _ in range(world_size):
            scheduler.step()
        losses.append(loss.item())
    if rank == 0:
        print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
