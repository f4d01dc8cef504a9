"""Train on a folder with a file for each sample."""

import tempfile
from dataclasses import dataclass

import torch
from store import FileSamples, PackedSamples, write_samples
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class Settings:
    samples: int = 1500
    batch_size: int = 50
    in_memory: bool = False
    hidden: int = 640
    epochs: int = 300


class DataModule:
    def __init__(self, folder, settings):
        paths = write_samples(folder, settings.samples, (8, 128))
        self.data = PackedSamples(paths) if settings.in_memory else FileSamples(paths)
        self.settings = settings

    def train_loader(self):
        return DataLoader(self.data, self.settings.batch_size, shuffle=True)  # planted: no-workers, loader-bound


class Network(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(1024, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.classifier = nn.Linear(hidden, 5)

    def forward(self, values):
        return self.classifier(nn.functional.silu(self.encoder(values)))


def fit(settings):
    with tempfile.TemporaryDirectory() as folder:
        loader = DataModule(folder, settings).train_loader()
        model = Network(settings.hidden)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        for _ in range(settings.epochs):
            for values, labels in loader:
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = nn.functional.cross_entropy(model(values), labels)
                loss.backward()
                optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    fit(Settings())
