"""Batches of bytes from Python's standard library."""

import sysconfig
from pathlib import Path

import torch


def read_bytes(files=40):
    folder = Path(sysconfig.get_path("stdlib"))
    text = b"\n".join(path.read_bytes() for path in sorted(folder.glob("*.py"))[:files])
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def batches(data, batch_size, length, seed):
    generator = torch.Generator().manual_seed(seed)
    window = torch.arange(length + 1)
    while True:
        starts = torch.randint(len(data) - length, (batch_size, 1), generator=generator)
        chunk = data[starts + window]
        yield chunk[:, :-1], chunk[:, 1:]
