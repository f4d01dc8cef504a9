"""Pieces of the standard library's source, tokenised once and labelled with their package."""

import re
import sysconfig
from collections import Counter
from pathlib import Path

import torch
from torch.utils.data import Dataset

PACKAGES = ["asyncio", "email", "http", "importlib", "json", "logging", "multiprocessing", "xml"]
SPECIAL = 3
_WORD = re.compile(r"[A-Za-z]+|\d|[^\sA-Za-z\d]")


def read_words(lines_per_snippet=8):
    library = Path(sysconfig.get_paths()["stdlib"])
    for label, package in enumerate(PACKAGES):
        for file in sorted((library / package).rglob("*.py")):
            lines = file.read_text(encoding="utf-8", errors="ignore").splitlines()
            for start in range(0, len(lines), lines_per_snippet // 2):
                words = _WORD.findall("\n".join(lines[start : start + lines_per_snippet]))
                if len(words) > 20:
                    yield words, label


class Snippets(Dataset):
    """Token ids of equal length: 0 is padding, 1 an unknown word, 2 begins a snippet."""

    def __init__(self, vocabulary_size, length):
        snippets = list(read_words())
        counts = Counter(word for words, _ in snippets for word in words)
        numbers = {word: SPECIAL + i for i, (word, _) in enumerate(counts.most_common(vocabulary_size - SPECIAL))}
        self.tokens = torch.zeros(len(snippets), length, dtype=torch.long)
        self.tokens[:, 0] = 2
        for row, (words, _) in zip(self.tokens, snippets, strict=True):
            known = [numbers.get(word, 1) for word in words[: length - 1]]
            row[1 : 1 + len(known)] = torch.tensor(known)
        self.labels = torch.tensor([label for _, label in snippets])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {"input_ids": tokens, "attention_mask": (tokens != 0).long(), "labels": self.labels[index]}
