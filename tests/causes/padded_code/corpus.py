"""Pieces of the standard library's source as lists of character ids."""

import argparse
import heapq
import json
import random
import textwrap
from pathlib import Path

from torch.utils.data import Dataset

MODULES = (argparse, heapq, json, random, textwrap)
LONGEST = 400


class Pieces(Dataset):
    """Pieces of a few lines, labelled by whether they define a function."""

    def __init__(self, lines=8):
        text = "\n".join(Path(module.__file__).read_text(encoding="utf-8") for module in MODULES)
        rows = [line for line in text.splitlines() if line.strip()]
        self.pieces = ["\n".join(rows[start : start + lines]) for start in range(len(rows) - lines)]

    def __len__(self):
        return len(self.pieces)

    def __getitem__(self, index):
        piece = self.pieces[index]
        return [ord(it) % 128 for it in piece[:LONGEST]], int("def " in piece)
