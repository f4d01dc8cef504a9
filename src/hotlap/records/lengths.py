"""How much of the work on sequences is padding, and what other batches of the same sequences would leave of it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record

BatchOrder: TypeAlias = Literal["given", "sorted", "bucketed", "filled"]


class Batching(Record, frozen=True, kw_only=True):
    """How sequences are put into batches.

    ``order`` is ``given`` (as the inputs are), ``sorted`` (by length), ``bucketed`` (only sequences whose lengths round
    up to the same ``multiple`` share a batch) or ``filled`` (by length, and a batch has as many sequences as fit into
    the positions of the largest given one, so that short sequences share larger batches). Each batch is padded to its
    longest sequence, rounded up to a multiple; with a ``multiple`` of 0 to the length that its input has.
    """

    order: BatchOrder = "given"
    multiple: int = 0


class Padding(Record, frozen=True, kw_only=True):
    """What the model computes for one way of batching: so many ``positions`` of sequences, padding included, in so many
    ``batches`` of so many different ``shapes``."""

    batching: Batching
    positions: int
    batches: int
    shapes: int


class LengthFacts(Record, frozen=True, kw_only=True):
    """The lengths of the sequences among an inference target's inputs, by their attention ``mask``.

    ``tokens`` are the positions that are no padding. ``paddings`` are the ways of batching, the inputs' own first. With
    ``whole_passes`` a unit of work is a pass over all inputs instead of one call.
    """

    mask: str
    sequences: int
    tokens: int
    shortest: int
    median: float
    longest: int
    paddings: tuple[Padding, ...]
    whole_passes: bool = False
