"""Functions of the standard library: does a text define a class?"""

import sysconfig
from pathlib import Path

import torch


class Texts:
    def __init__(self, longest=256):
        folder = Path(sysconfig.get_path("stdlib"))
        parts = [part for path in sorted(folder.glob("*.py"))[:60] for part in path.read_bytes().split(b"\n\n\n")]
        self.items = [(part[:longest], int(b"class " in part)) for part in parts if len(part) > 40]

    def batches(self, size, generator):
        """Batches as long as their longest text."""
        order = torch.randperm(len(self.items), generator=generator)
        for rows in order.split(size):
            texts, labels = zip(*(self.items[row] for row in rows.tolist()), strict=True)
            length = max(map(len, texts))
            yield torch.tensor([list(text.ljust(length)) for text in texts]), torch.tensor(labels)
