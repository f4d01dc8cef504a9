"""How much of the batches is padding, by the masks of training forwards."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hotlap.evidence import PaddedForwards
from hotlap.runtime.evidence.padding import PaddingWatch
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 4)

    def forward(self, words: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        vectors: Tensor = self.table(words)
        return vectors


@pytest.fixture
def watched() -> Iterator[tuple[PaddingWatch, Words]]:
    interception = Interception(Hooks(torch=torch))
    interception.install()
    clock: Any = SimpleNamespace(steps_done=0)
    watching, model = PaddingWatch(interception, clock), Words()
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # type: ignore[assignment]
    yield watching, model
    interception.suspend()


def mask_of(*lengths: int, longest: int = 8) -> Tensor:
    return (torch.arange(longest)[None] < torch.tensor(lengths)[:, None]).long()


def found(watching: PaddingWatch) -> PaddedForwards:
    padding = watching.result()["padding"]
    assert isinstance(padding, PaddedForwards)
    return padding


WORDS = torch.ones(2, 8, dtype=torch.long)


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.int32])
def test_positions_in_use_are_counted(watched: tuple[PaddingWatch, Words], dtype: torch.dtype) -> None:
    watching, model = watched
    watching.resume()
    model(WORDS, attention_mask=mask_of(3, 8).to(dtype))
    model(WORDS, attention_mask=mask_of(1, 4).to(dtype))
    assert found(watching) == PaddedForwards(forwards=2, positions=32, used=16)


def test_only_observed_training_forwards_count(watched: tuple[PaddingWatch, Words]) -> None:
    watching, model = watched
    model(WORDS, attention_mask=mask_of(3, 8))
    watching.resume()
    model.eval()
    model(WORDS, attention_mask=mask_of(3, 8))
    model.train()
    model(WORDS)
    model(WORDS, attention_mask=mask_of(3, 8).float())
    model(WORDS, attention_mask=torch.ones(2, 1, 8, 8, dtype=torch.bool))
    watching.pause()
    model(WORDS, attention_mask=mask_of(3, 8))
    assert found(watching) == PaddedForwards()
