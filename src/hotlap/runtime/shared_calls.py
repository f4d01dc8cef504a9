"""Several inputs of an inference target in one call: concatenated along their first dimension, outputs cut apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeAlias

from hotlap.levers.support.structures import named_tensors, rebuilt

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

SIZES: Final = (4, 16)
"""How many inputs per call are worth a trial: a few, and so many that most of a fixed cost per call is gone."""


@dataclass(frozen=True, slots=True)
class SharedCall:
    """The arguments of a call, and which rows of its outputs belong to which input (a single part: all of them)."""

    arguments: Arguments
    parts: tuple[slice, ...]

    def answers(self, output: Any) -> Iterator[Any]:
        """What each input by itself would have returned. Raises ValueError for an output without a row per sample."""
        if len(self.parts) == 1:
            yield output
            return
        named = list(named_tensors(output))
        rows = self.parts[-1].stop
        for name, tensor in named:
            if not tensor.dim() or tensor.shape[0] != rows:
                raise ValueError(f"The {name} has no row for each sample, so that inputs cannot share a call.")
        for part in self.parts:
            yield rebuilt(output, iter([tensor[part] for _, tensor in named]))


def possible_sizes(inputs: Sequence[Arguments]) -> tuple[tuple[int, int], ...]:
    """How many inputs may share a call, and how many calls all inputs then take; none where none can."""
    found = ((it, len(list(_groups(inputs, it)))) for it in SIZES)
    return tuple((most, calls) for most, calls in found if calls < len(inputs) and most <= len(inputs))


def calls_of(torch: ModuleType, inputs: Sequence[Arguments], together: int) -> list[SharedCall]:
    """Calls with up to so many consecutive inputs that differ in nothing but the number of their rows."""
    if together == 1:
        return [SharedCall(it, (slice(0, 0),)) for it in inputs]
    return [_joined(torch, it) for it in _groups(inputs, together)]


def _groups(inputs: Sequence[Arguments], most: int) -> Iterator[Sequence[Arguments]]:
    for signature, alike in itertools.groupby(inputs, _signature):
        held = list(alike)
        size = most if signature is not None else 1
        yield from (held[start : start + size] for start in range(0, len(held), size))


def _joined(torch: ModuleType, group: Sequence[Arguments]) -> SharedCall:
    if len(group) == 1:
        return SharedCall(group[0], (slice(0, 0),))
    rows = [[tensor for _, tensor in named_tensors(it)] for it in group]
    ends = list(itertools.accumulate(int(tensors[0].shape[0]) for tensors in rows))
    joined = iter([torch.cat(column) for column in zip(*rows, strict=True)])
    parts = tuple(slice(start, end) for start, end in zip([0, *ends], ends, strict=False))
    return SharedCall(rebuilt(group[0], joined), parts)


def _signature(arguments: Arguments) -> Any:
    """What inputs that share a call have in common; None for one that cannot share any: a tensor lacks the rows of the
    others, or another value cannot be compared."""
    tensors = list(named_tensors(arguments))
    if not tensors or len({it.shape[0] if it.dim() else None for _, it in tensors} - {None}) != 1:
        return None
    if any(not it.dim() for _, it in tensors):
        return None
    rest = repr(rebuilt(arguments, itertools.repeat(None)))
    return rest, tuple((name, it.dtype, it.device, tuple(it.shape[1:])) for name, it in tensors)
