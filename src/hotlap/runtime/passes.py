"""Whole passes over the inputs of an inference target: sequences in batches of any order, outputs in the original one.

The batches are formed once, before the first call; cutting the outputs apart again is part of each pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from types import ModuleType
from typing import Any, Literal, TypeAlias

from hotlap.levers.support.lengths import GIVEN, TRIED, Batch, batches_of, padding_of
from hotlap.levers.support.structures import named_tensors, rebuilt
from hotlap.records import Batching, LengthFacts

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
_Kind: TypeAlias = Literal["sequence", "row", "constant"]


class NoLengths(ValueError):
    """The inputs do not show which positions are padding; the message says why."""


@dataclass(frozen=True, slots=True)
class FormedBatch:
    """The arguments of a call, and which sequences it computes."""

    arguments: Arguments
    batch: Batch
    index: Any


class Sequences:
    """The sequences of all inputs, by their attention mask. Raises :class:`NoLengths`."""

    def __init__(self, torch: ModuleType, inputs: Sequence[Arguments]) -> None:
        self._torch = torch
        self._inputs = inputs
        rows = [dict(named_tensors(it, "input")) for it in inputs]
        self.mask = _mask_of(torch, rows)
        _check_alike(inputs, rows)
        masks = [it[self.mask] for it in rows]
        self._at_left = _padded_at_left(torch, masks)
        self._kinds = {name: _kind_of(torch, name, rows, masks) for name in rows[0]}
        self._rows = rows
        self.lengths = [int(it) for mask in masks for it in mask.sum(dim=1)]
        first = itertools.accumulate((len(it) for it in masks), initial=0)
        self.given = [
            Batch(tuple(range(at, at + len(it))), int(it.shape[1])) for at, it in zip(first, masks, strict=False)
        ]
        self._places = [(number, row) for number, it in enumerate(self.given) for row in range(len(it.sequences))]
        self._fills = {name: self._fill_of(name) for name, kind in self._kinds.items() if kind == "sequence"}

    def facts(self, *, whole_passes: bool) -> LengthFacts:
        """What is padding, and what it would be in other batches."""
        return LengthFacts(
            mask=self.mask,
            sequences=len(self.lengths),
            tokens=sum(self.lengths),
            shortest=min(self.lengths),
            median=float(median(self.lengths)),
            longest=max(self.lengths),
            paddings=tuple(padding_of(self.lengths, self.given, it) for it in (GIVEN, *TRIED)),
            whole_passes=whole_passes,
        )

    def formed(self, batching: Batching) -> list[FormedBatch]:
        """The arguments of all calls of a pass."""
        batches = batches_of(self.lengths, self.given, batching)
        arguments = self._inputs if batching == GIVEN else [self._arguments(it) for it in batches]
        return [
            FormedBatch(own, batch, self._torch.tensor(batch.sequences))
            for own, batch in zip(arguments, batches, strict=True)
        ]

    def of_two_lengths(self) -> list[FormedBatch]:
        """The first input, and the same without its last position; of a single position there is no second."""
        sequences, length = self.given[0].sequences, self.given[0].length
        batches = [Batch(sequences, it) for it in (length, length - 1) if it]
        return [FormedBatch(self._arguments(it), it, None) for it in batches]

    def fitted(self, tensor: Any, length: int, fill: float = 0) -> Any:
        """The sequences cut off, or padded with ``fill``, to that length."""
        own = int(tensor.shape[1])
        if length <= own:
            return tensor[:, own - length :] if self._at_left else tensor[:, :length]
        missing = tensor.new_full((tensor.shape[0], length - own, *tensor.shape[2:]), fill)
        parts = (missing, tensor) if self._at_left else (tensor, missing)
        return self._torch.cat(parts, dim=1)

    def own_mask(self, number: int) -> Any:
        """The mask of an input."""
        return self._rows[number][self.mask]

    def _arguments(self, batch: Batch) -> Arguments:
        tensors = {name: self._gathered(name, batch) for name in self._kinds}
        found: Arguments = rebuilt(self._inputs[0], iter(tensors.values()))
        return found

    def _gathered(self, name: str, batch: Batch) -> Any:
        kind = self._kinds[name]
        if kind == "constant":
            return self._rows[0][name]
        chosen = [self._sequence(name, it) for it in batch.sequences]
        if kind == "sequence":
            chosen = [self.fitted(it, batch.length, self._fills[name]) for it in chosen]
        return self._torch.cat(chosen).contiguous()

    def _sequence(self, name: str, sequence: int) -> Any:
        number, row = self._places[sequence]
        return self._rows[number][name][row : row + 1]

    def _fill_of(self, name: str) -> float:
        """What stands where the mask is 0, as a tokenizer's own number for padding."""
        for row in self._rows:
            held = row[name][row[self.mask] == 0].reshape(-1)
            if held.numel():
                value: float = held[0].item()
                return value
        return 0


class Passes:
    """The batches of a pass, and what they return, put back into the order and lengths of the inputs.

    Which outputs have a position for each position of the input is found by calling the model with two lengths.
    """

    def __init__(self, sequences: Sequences, model: Callable[..., Any], batching: Batching) -> None:
        self._sequences = sequences
        self.batches = sequences.formed(batching)
        probes = [_probe(model, it) for it in sequences.of_two_lengths()]
        self._example = probes[0].output
        self._names = list(probes[0].shapes)
        for it in probes:
            _check_rows(it)
        self._follows = {
            name: len(probes) > 1 and all(it.shapes[name][1:2] == (it.length,) for it in probes) for name in self._names
        }
        self._buffers: dict[str, Any] = {}

    def keep(self, batch: FormedBatch, output: Any) -> None:
        """Copy what one call returned; later calls may overwrite it."""
        longest = max(it.length for it in self._sequences.given)
        for name, tensor in named_tensors(output):
            held = self._sequences.fitted(tensor, longest) if self._follows[name] else tensor
            if name not in self._buffers:
                self._buffers[name] = held.new_empty((len(self._sequences.lengths), *held.shape[1:]))
            self._buffers[name].index_copy_(0, batch.index.to(held.device), held)

    def outputs(self) -> Iterator[Any]:
        """What the model would have returned for each input, with zeros where the input is padding."""
        for number, given in enumerate(self._sequences.given):
            rows = slice(given.sequences[0], given.sequences[-1] + 1)
            found = []
            for name in self._names:
                held = self._buffers[name][rows]
                if self._follows[name]:
                    held = self._sequences.fitted(held, given.length)
                    held = held * _as_wide(self._sequences.own_mask(number), held)
                found.append(held)
            yield rebuilt(self._example, iter(found))


@dataclass(frozen=True, slots=True)
class _Probe:
    output: Any
    shapes: dict[str, tuple[int, ...]]
    rows: int
    length: int


def _probe(model: Callable[..., Any], formed: FormedBatch) -> _Probe:
    args, kwargs = formed.arguments
    output = model(*args, **kwargs)
    shapes = {name: tuple(int(size) for size in it.shape) for name, it in named_tensors(output)}
    return _Probe(output, shapes, len(formed.batch.sequences), formed.batch.length)


def _check_rows(probe: _Probe) -> None:
    for name, shape in probe.shapes.items():
        if shape[:1] != (probe.rows,):
            raise ValueError(f"The {name} has no row for each sequence, so that its batches cannot be formed again.")


def _as_wide(mask: Any, tensor: Any) -> Any:
    return mask.to(tensor.dtype).to(tensor.device).reshape(*mask.shape, *(1 for _ in range(tensor.dim() - 2)))


def _mask_of(torch: ModuleType, rows: Sequence[dict[str, Any]]) -> str:
    for name in rows[0]:
        held = [it.get(name) for it in rows]
        if "mask" in name and all(it is not None and _is_mask(torch, it) for it in held):
            return name
    raise NoLengths(
        "No argument is an attention mask: a tensor of ones and zeros, batch by length, with `mask` in its name."
    )


def _is_mask(torch: ModuleType, tensor: Any) -> bool:
    return tensor.dim() == 2 and tensor.numel() > 0 and bool(((tensor == 0) | (tensor == 1)).all())


def _padded_at_left(torch: ModuleType, masks: Sequence[Any]) -> bool:
    changes = [it.to(torch.int8).diff(dim=1) for it in masks]
    if all(bool((it <= 0).all()) for it in changes):
        return False
    if all(bool((it >= 0).all()) for it in changes):
        return True
    raise NoLengths("The attention mask has gaps, so that it shows no lengths.")


def _kind_of(torch: ModuleType, name: str, rows: Sequence[dict[str, Any]], masks: Sequence[Any]) -> _Kind:
    held = [it[name] for it in rows]
    if all(it.shape[:2] == mask.shape for it, mask in zip(held, masks, strict=True)):
        return "sequence"
    if all(it.shape[:1] == mask.shape[:1] for it, mask in zip(held, masks, strict=True)):
        return "row"
    if all(torch.equal(it, held[0]) for it in held):
        return "constant"
    raise NoLengths(f"The argument {name} has no row for each sequence, and differs between inputs.")


def _check_alike(inputs: Sequence[Arguments], rows: Sequence[dict[str, Any]]) -> None:
    first = rebuilt(inputs[0], itertools.repeat(None))
    for number, (own, row) in enumerate(zip(inputs, rows, strict=True)):
        if list(row) != list(rows[0]) or rebuilt(own, itertools.repeat(None)) != first:
            raise NoLengths(f"Input {number} differs from input 0 in more than its tensors.")
