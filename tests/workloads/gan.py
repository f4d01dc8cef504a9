"""Two optimizers and three backwards for each batch."""

import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

torch.manual_seed(999)
batch_size, nz = 16, 8
netG = nn.Sequential(nn.Linear(nz, 32), nn.ReLU(), nn.Linear(32, 20), nn.Tanh())
netD = nn.Sequential(nn.Linear(20, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
dataloader = DataLoader(TensorDataset(torch.randn(batch_size * args.steps, 20)), batch_size=batch_size, shuffle=True)

losses = []
since_last_update = []
for (real,) in dataloader:
    netD.zero_grad()
    label = torch.full((batch_size,), 1.0)
    errD_real = criterion(netD(real).view(-1), label)
    errD_real.backward()
    fake = netG(torch.randn(batch_size, nz))
    errD_fake = criterion(netD(fake.detach()).view(-1), torch.zeros_like(label))
    errD_fake.backward()
    optimizerD.step()
    since_last_update += [errD_real.item(), errD_fake.item()]
    losses.append(sum(since_last_update) / len(since_last_update))

    netG.zero_grad()
    errG = criterion(netD(fake).view(-1), label)
    errG.backward()
    optimizerG.step()
    since_last_update = [errG.item()]

print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
