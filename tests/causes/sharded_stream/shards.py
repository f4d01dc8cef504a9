"""Samples in compressed shards; one shard is open at a time."""

import lzma

import torch
from torch.utils.data import Dataset


class Shards(Dataset):
    """``count`` shards with ``size`` samples each."""

    def __init__(self, count, size, features):
        generator = torch.Generator().manual_seed(0)
        self.size, self.features = size, features
        self.packed = []
        for _ in range(count):
            values = torch.randint(-8, 8, (size, features), generator=generator, dtype=torch.int16)
            self.packed.append(lzma.compress(values.numpy().tobytes(), preset=0))
        self.opened, self.values = None, None

    def __len__(self):
        return len(self.packed) * self.size

    def __getitem__(self, index):
        shard, row = divmod(index, self.size)
        if shard != self.opened:
            self.values = self.open(shard)
            self.opened = shard
        values = self.values[row].float() / 8
        return values, (values.sum() > 0).long()

    def open(self, shard):
        data = bytearray(lzma.decompress(self.packed[shard]))
        return torch.frombuffer(data, dtype=torch.int16).view(self.size, self.features)
