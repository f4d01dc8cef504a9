"""A user's module with sequences of different lengths, padded to 32 positions, and models of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

LENGTHS = (3, 30, 5, 7, 28, 4, 6, 2, 12, 9)
PADDED = 32


@dataclasses.dataclass
class Answer:
    hidden: torch.Tensor
    pooled: torch.Tensor


class Encoder(torch.nn.Module):
    """Attention that skips padding; its width is that of a padded sequence, so that sizes alone say little."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, PADDED)
        self.layer = torch.nn.TransformerEncoderLayer(PADDED, 2, 64, dropout=0.0, batch_first=True)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Answer:
        hidden = self.layer(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        wide = attention_mask[:, :, None].to(hidden.dtype)
        return Answer(hidden=hidden, pooled=(hidden * wide).sum(1) / wide.sum(1))


def encoder() -> torch.nn.Module:
    model = Encoder().eval()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            values = torch.arange(parameter.numel(), dtype=torch.float32)
            parameter.copy_((torch.sin(values * 12.9898 + index) / 4).reshape(parameter.shape))
    return model


def padded(lengths: tuple[int, ...], *, at_left: bool = False) -> dict[str, Any]:
    ids = torch.full((len(lengths), PADDED), 49)
    mask = torch.zeros(len(lengths), PADDED, dtype=torch.int64)
    for row, length in enumerate(lengths):
        where = slice(PADDED - length, None) if at_left else slice(0, length)
        ids[row, where] = torch.arange(length) + row
        mask[row, where] = 1
    return {"input_ids": ids, "attention_mask": mask}


def texts() -> list[dict[str, Any]]:
    return [padded(LENGTHS[:4]), padded(LENGTHS[4:8]), padded(LENGTHS[8:])]


def texts_padded_at_left() -> list[dict[str, Any]]:
    return [padded(LENGTHS[:4], at_left=True), padded(LENGTHS[4:8], at_left=True), padded(LENGTHS[8:], at_left=True)]


def texts_with_gaps() -> list[dict[str, Any]]:
    found = texts()
    found[1]["attention_mask"][0, 1] = 0
    return found


class Summing(Encoder):
    """Its output has no row for each sequence."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Answer:
        answer = super().forward(input_ids, attention_mask)
        return Answer(hidden=answer.hidden.sum(dim=0), pooled=answer.pooled)


def summing() -> torch.nn.Module:
    return Summing().eval()
