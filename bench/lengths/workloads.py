"""A user's module as ``hotlap infer --lengths`` takes it; ``real_models`` is that of ``tests/inference``."""

from __future__ import annotations

from collections.abc import Callable

import real_models
import torch

TEXTS = 256


def minilm() -> torch.nn.Module:
    torch.set_num_threads(2)
    return real_models.minilm()


def __getattr__(target: str) -> Callable[[], list[dict[str, torch.Tensor]]]:
    """``texts_8``: sentences in batches of 8, in the order in which they come, padded to the longest of a batch."""
    name, _, size = target.partition("_")
    if name != "texts" or not size.isdecimal():
        raise AttributeError(f"module has no attribute {target!r}")
    return lambda: real_models.tokenized(real_models.sentences(TEXTS), int(size))
