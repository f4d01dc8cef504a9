"""A loader whose two workers read many small files that lay in the project before."""

from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Files(Dataset):
    def __init__(self) -> None:
        self.paths = sorted(Path("samples").glob("*.bin"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.frombuffer(bytearray(self.paths[index].read_bytes()), dtype=torch.float32)


if __name__ == "__main__":
    model = torch.nn.Linear(1024, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        for batch in DataLoader(Files(), batch_size=64, shuffle=True, num_workers=2, persistent_workers=False):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
