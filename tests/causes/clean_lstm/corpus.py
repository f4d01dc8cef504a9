import sysconfig
from pathlib import Path

import torch


class Corpus:
    """Character ids of some modules' text, in columns that are read in parallel."""

    def __init__(self, columns, megabytes=2):
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        text = "".join(file.read_text(encoding="utf-8", errors="ignore") for file in files)[: megabytes << 20]
        self.characters = sorted({it for it in text if it.isascii()})
        numbers = {character: i for i, character in enumerate(self.characters)}
        tokens = torch.tensor([numbers[it] for it in text if it in numbers])
        rows = len(tokens) // columns
        self.tokens = tokens[: rows * columns].view(columns, rows).t().contiguous()

    def windows(self, length):
        """Yield consecutive inputs and targets of shape (length, columns)."""
        for start in range(0, len(self.tokens) - length - 1, length):
            yield self.tokens[start : start + length], self.tokens[start + 1 : start + length + 1]
