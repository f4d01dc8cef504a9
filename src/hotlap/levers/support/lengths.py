"""Putting sequences of different lengths into batches, as arithmetic. Not a lever itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hotlap.records import Batching, Padding

GIVEN = Batching()
TRIED = (
    Batching(order="filled", multiple=8),
    Batching(order="sorted", multiple=8),
    Batching(order="sorted", multiple=1),
    Batching(order="bucketed", multiple=32),
    Batching(order="given", multiple=1),
)
"""Those worth a trial, best guess first: multiples of 8 suit vector units, larger ones leave few shapes to compile."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The numbers of its sequences, and the length to which they are padded."""

    sequences: tuple[int, ...]
    length: int


def batches_of(lengths: Sequence[int], given: Sequence[Batch], batching: Batching) -> list[Batch]:
    """Put sequences into batches of the size that the largest of the ``given`` ones has: so many sequences or, if they
    are ``filled``, so many positions.

    A batch is never longer than the longest given one. Long batches come first, so that the peak of memory does.
    """
    if batching.order == "given":
        return [Batch(it.sequences, _padded(it, lengths, batching.multiple)) for it in given]
    size = max(len(it.sequences) for it in given)
    most = max(it.length for it in given)
    ordered = sorted(range(len(lengths)), key=lambda it: -lengths[it])
    if batching.order == "filled":
        positions = max(len(it.sequences) * it.length for it in given)
        return list(_filled(ordered, lengths, positions, most, batching.multiple))
    groups: Iterator[list[int]] = iter([ordered])
    if batching.order == "bucketed":
        groups = (list(same) for _, same in groupby(ordered, lambda it: _rounded(lengths[it], batching.multiple)))
    return [
        Batch(chunk, min(most, _rounded(max(lengths[it] for it in chunk), batching.multiple)))
        for group in groups
        for chunk in _chunks(group, size)
    ]


def _filled(
    ordered: Sequence[int], lengths: Sequence[int], positions: int, most: int, multiple: int
) -> Iterator[Batch]:
    """Batches of descending lengths with at most so many positions each."""
    start = 0
    while start < len(ordered):
        length = min(most, _rounded(lengths[ordered[start]], multiple))
        count = max(1, positions // length)
        yield Batch(tuple(ordered[start : start + count]), length)
        start += count


def padding_of(lengths: Sequence[int], given: Sequence[Batch], batching: Batching) -> Padding:
    """What the model computes for these batches."""
    batches = batches_of(lengths, given, batching)
    return Padding(
        batching=batching,
        positions=sum(len(it.sequences) * it.length for it in batches),
        batches=len(batches),
        shapes=len({(len(it.sequences), it.length) for it in batches}),
    )


def _padded(batch: Batch, lengths: Sequence[int], multiple: int) -> int:
    if not multiple:
        return batch.length
    return min(batch.length, _rounded(max(lengths[it] for it in batch.sequences), multiple))


def _rounded(length: int, multiple: int) -> int:
    """At least one position, since a model cannot compute on none."""
    return max(1, math.ceil(length / max(1, multiple)) * max(1, multiple))


def _chunks(group: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    for start in range(0, len(group), size):
        yield tuple(group[start : start + size])
