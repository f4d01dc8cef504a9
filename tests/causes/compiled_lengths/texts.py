"""Lines of the standard library, labelled by whether they begin a function."""

import sysconfig
from pathlib import Path

import torch


class Lines:
    def __init__(self, shortest=8, longest=160):
        folder = Path(sysconfig.get_path("stdlib"))
        lines = [line for path in sorted(folder.glob("*.py"))[:60] for line in path.read_bytes().splitlines()]
        self.items = [(line, int(b"def " in line)) for line in lines if shortest <= len(line) <= longest]

    def batches(self, size, generator):
        """Yield batches padded to their longest line."""
        order = torch.randperm(len(self.items), generator=generator)
        for rows in order.split(size):
            lines, labels = zip(*(self.items[row] for row in rows.tolist()), strict=True)
            length = max(map(len, lines))
            yield torch.tensor([list(line.ljust(length)) for line in lines]), torch.tensor(labels)
