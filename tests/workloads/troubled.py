"""One step fails: the loss is not finite, or the script hangs, exits, or runs out of memory."""

import argparse
import json
import os
import signal
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--at", type=int, default=30)
parser.add_argument("--trouble", choices=["nan", "hang", "leave", "memory", "error", "worker"], required=True)
args = parser.parse_args()


class Examples(Dataset):
    def __len__(self):
        return 16 * args.steps

    def __getitem__(self, index):
        if args.trouble == "worker" and index == 16 * args.at:
            time.sleep(1.0)  # the batches before this one have arrived by then
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.randn(8, generator=torch.Generator().manual_seed(index))
        return x, x[:1]


torch.manual_seed(17)
loader = DataLoader(Examples(), batch_size=16, num_workers=1 if args.trouble == "worker" else 0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for step, (inputs, targets) in enumerate(loader):
    if step == args.at:
        if args.trouble == "nan":
            inputs = inputs * float("nan")
        elif args.trouble == "hang":
            time.sleep(3600)
        elif args.trouble == "leave":
            os._exit(3)
        elif args.trouble == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        elif args.trouble == "error":
            raise ValueError("Expected more than 1 value per channel when training")
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
