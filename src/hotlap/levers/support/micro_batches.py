"""Split batches along their first dimension, and concatenate outputs. Not a lever itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


class CannotSplit(Exception):
    """An input or output whose samples cannot be separated."""


def samples_in(torch: ModuleType, value: Any) -> int:
    """Return the first dimension of the first tensor that has one; 0 if there is none."""
    return next((int(it.shape[0]) for it in tensors_of(torch, value) if it.dim()), 0)


def tensors_of(torch: ModuleType, value: Any) -> Iterator[Any]:
    """Yield the tensors of nested tuples, lists and dictionaries. Raises :class:`CannotSplit` for other containers
    and for nested tensors."""
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            raise CannotSplit("a nested tensor has no dimension of samples that could be cut")
        yield value
    elif isinstance(value, dict):
        for it in value.values():
            yield from tensors_of(torch, it)
    elif isinstance(value, (tuple, list)):
        for it in value:
            yield from tensors_of(torch, it)
    elif not (value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device))):
        raise CannotSplit(f"a {type(value).__name__} may hold tensors of the batch")


def part_of(torch: ModuleType, value: Any, samples: int, start: int, end: int) -> Any:
    """Return samples ``start`` to ``end``; all micro-batches share tensors with another first dimension."""

    def cut(tensor: Any) -> Any:
        return tensor[start:end] if tensor.dim() and tensor.shape[0] == samples else tensor

    return mapped(torch, value, cut)


def joined(torch: ModuleType, parts: list[Any]) -> Any:
    """Concatenate the outputs of all micro-batches."""
    return _rebuilt(parts[0], parts, torch.cat, torch)


def is_by_sample(torch: ModuleType, output: Any, samples: int) -> bool:
    """Whether every tensor of the output has one entry for each sample."""
    try:
        tensors = list(tensors_of(torch, output))
    except CannotSplit:
        return False
    return bool(tensors) and all(it.dim() and it.shape[0] == samples for it in tensors)


def mapped(torch: ModuleType, value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the value with ``change`` applied to each tensor."""
    return _rebuilt(value, [value], lambda tensors: change(tensors[0]), torch)


def gathered(torch: ModuleType, parts: list[Any], samples: list[int]) -> Any:
    """Concatenate what holds one entry for each of the ``samples`` of its part; the first part has all the rest."""

    def gather(tensors: list[Any]) -> Any:
        by_sample = all(it.dim() and it.shape[0] == count for it, count in zip(tensors, samples, strict=True))
        return torch.cat(tensors) if by_sample else tensors[0]

    return _rebuilt(parts[0], parts, gather, torch)


def without_tensors(torch: ModuleType, value: Any) -> Any:
    """Return the value with None for each tensor: what two calls with other samples have in common."""
    return mapped(torch, value, lambda tensor: None)


def random_states(torch: ModuleType, inputs: Any) -> list[tuple[Callable[[Any], None], Any]]:
    """Return what sets each generator that a forward pass on these inputs may draw from, with its state."""
    found = [(torch.set_rng_state, torch.get_rng_state())]
    for kind in sorted({it.device.type for it in tensors_of(torch, inputs)} - {"cpu", "meta"}):
        module = torch.get_device_module(kind)
        found.append((module.set_rng_state, module.get_rng_state()))
    return found


def _rebuilt(shape: Any, values: list[Any], combine: Callable[[list[Any]], Any], torch: ModuleType) -> Any:
    """Return a value like ``shape``, its tensors built from those of all ``values`` at the same place."""
    if isinstance(shape, torch.Tensor):
        return combine(values)
    if isinstance(shape, dict):
        entries = {key: _rebuilt(it, [value[key] for value in values], combine, torch) for key, it in shape.items()}
        return entries if type(shape) is dict else type(shape)(**entries)
    if isinstance(shape, (tuple, list)):
        items = [_rebuilt(it, [value[index] for value in values], combine, torch) for index, it in enumerate(shape)]
        return type(shape)(*items) if hasattr(shape, "_fields") else type(shape)(items)
    return shape
