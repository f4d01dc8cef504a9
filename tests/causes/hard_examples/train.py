"""Regression on a rugged function, with hard examples drawn more often."""

import torch
from sampling import HardExampleSampler
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rugged(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.rand(count, 6, generator=generator)
        self.targets = torch.sin(20 * self.inputs).prod(dim=1)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return index, self.inputs[index], self.targets[index]


class HardExampleTrainer:
    def __init__(self, data, batch_size=96, refresh=20):
        self.sampler = HardExampleSampler(len(data), batch_size)
        self.loader = DataLoader(  # planted: loader-bound
            data, batch_sampler=self.sampler, num_workers=1, persistent_workers=True
        )
        self.model = nn.Sequential(nn.Linear(6, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.refresh = refresh

    def fit(self, epochs):
        for _ in range(epochs):
            for step, (indices, inputs, targets) in enumerate(self.loader):
                with torch.autocast("cpu", torch.bfloat16):
                    errors = (self.model(inputs).squeeze(1) - targets) ** 2
                self.optimizer.zero_grad()
                errors.mean().backward()
                self.optimizer.step()
                if step % self.refresh == 0:
                    self.sampler.update(indices.tolist(), errors.detach().tolist())


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    HardExampleTrainer(Rugged(20_000)).fit(epochs=200)
