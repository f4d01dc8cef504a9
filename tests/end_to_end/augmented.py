"""A training whose samples are augmented at random: the pictures by three generators, and the batch once more."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info


class Augmented(Dataset):
    def __init__(self, forgets: bool) -> None:
        self.pictures = torch.randn(256, 3, 8, 8, generator=torch.Generator().manual_seed(1))
        self.labels = self.pictures.mean(dim=(1, 2, 3)).gt(0).long()
        self.forgets = forgets

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index):
        picture = self.pictures[index]
        if self.forgets and get_worker_info() is not None:
            return picture, self.labels[index]
        if random.random() < 0.5:
            picture = picture.flip(-1)
        picture = picture * float(np.random.uniform(0.5, 1.5))
        return picture + 0.3 * torch.randn_like(picture), self.labels[index]


class Stream(IterableDataset):
    def __init__(self, dataset: Augmented) -> None:
        self.dataset = dataset

    def __iter__(self):
        return iter(self.dataset[index] for index in range(len(self.dataset)))


def collate(samples):
    pictures, labels = default_collate(samples)
    masked = torch.rand(len(labels)) < 0.2
    return torch.where(masked[:, None, None, None], 0.0, pictures), labels, masked


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--forgets", action="store_true", help="samples that workers fetch are not augmented")
    parser.add_argument("--stream", action="store_true", help="samples come one after the other, not by an index")
    parser.add_argument("--context", help="how one worker starts (none: there is no worker)")
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    torch.set_num_threads(1)
    augmented = Augmented(args.forgets)
    loader = DataLoader(
        Stream(augmented) if args.stream else augmented,
        batch_size=16,
        shuffle=not args.stream,
        collate_fn=collate,
        multiprocessing_context=args.context,
        num_workers=0 if args.context is None else 1,
    )
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(288, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(100):
        for pictures, labels, _masked in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
