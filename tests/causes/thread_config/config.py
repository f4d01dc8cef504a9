"""The options of a run."""

import argparse
from dataclasses import dataclass, fields

import torch


@dataclass
class Config:
    threads: int = 32
    batch_size: int = 32
    width: int = 48
    learning_rate: float = 1e-3
    steps: int = 50_000

    @classmethod
    def from_command_line(cls):
        parser = argparse.ArgumentParser()
        for field in fields(cls):
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
        return cls(**vars(parser.parse_args()))

    def apply(self):
        torch.manual_seed(0)
        torch.set_num_threads(self.threads)
