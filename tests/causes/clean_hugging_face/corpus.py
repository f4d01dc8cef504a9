import sysconfig
from pathlib import Path

import torch
from torch.utils.data import Dataset


class ByteBlocks(Dataset):
    """The standard library's source as bytes, in blocks of equal length."""

    def __init__(self, block, megabytes=4):
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        text = b"\n".join(file.read_bytes() for file in files)[: megabytes << 20]
        self.blocks = torch.tensor(list(text[: len(text) // block * block]), dtype=torch.uint8).view(-1, block)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        tokens = self.blocks[index].long()
        return {"input_ids": tokens, "labels": tokens}
