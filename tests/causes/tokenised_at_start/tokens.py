"""Source code as a sequence of token ids."""

import io
import tokenize
from pathlib import Path

import torch


class Vocabulary:
    def __init__(self, size):
        self.size = size
        self.ids = {}

    def __getitem__(self, word):
        return self.ids.setdefault(word, min(len(self.ids), self.size - 1))


def encode(source, vocabulary):
    """Return the ids of all tokens of a file."""
    ids = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):  # planted: startup-cost
        ids.append(vocabulary[token.string])
    return ids


def encode_folders(folders, vocabulary):
    """Concatenate the tokens of all files of some folders."""
    ids = []
    for folder in folders:
        for path in sorted(Path(folder).glob("*.py")):
            ids += encode(path.read_text(encoding="utf-8"), vocabulary)
    return torch.tensor(ids)
