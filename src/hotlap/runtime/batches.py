"""Looking into batches: tensors in tuples, lists, dictionaries and objects that behave like them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAXIMUM_DEPTH = 4


def tensors(batch: Any, depth: int = 0) -> Iterator[Any]:
    """Every tensor in the batch, in a stable order."""
    if hasattr(batch, "dim") and hasattr(batch, "element_size"):
        yield batch
    elif depth < MAXIMUM_DEPTH:
        if isinstance(batch, Mapping):
            for value in batch.values():
                yield from tensors(value, depth + 1)
        elif isinstance(batch, (tuple, list)):
            for value in batch:
                yield from tensors(value, depth + 1)


def sizes_of(tensor: Any) -> tuple[int, ...]:
    """Its sizes; of a nested tensor only how many it holds, since their sizes differ."""
    return (int(tensor.size(0)),) if getattr(tensor, "is_nested", False) else tuple(int(size) for size in tensor.shape)


def leading_size(batch: Any) -> int:
    """How many samples a batch holds: the first dimension of its first tensor that has one; 0 without such."""
    first = batch[0] if type(batch) in (tuple, list) and batch else batch
    if getattr(first, "is_nested", False):
        return sizes_of(first)[0]
    shape = getattr(first, "shape", None)  # the common case, without a walk: it runs in every step
    if shape:
        return int(shape[0])
    for tensor in tensors(batch):
        if tensor.dim() > 0:
            return sizes_of(tensor)[0]
    return 0


def second_size(batch: Any) -> int:
    """The second dimension of the first tensor that has dimensions; 0 where it has only one, or is nested."""
    sizes: tuple[int, ...] = next((sizes_of(it) for it in tensors(batch) if it.dim() > 0), ())
    return sizes[1] if len(sizes) > 1 else 0


def size_in_bytes(batch: Any) -> int:
    """Bytes of all tensors of the batch."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(batch) if not tensor.is_sparse)


def transform(batch: Any, change: Callable[[Any], Any], depth: int = 0) -> Any:
    """The batch with ``change`` applied to each tensor, in containers of the same kind."""
    if hasattr(batch, "dim") and hasattr(batch, "element_size"):
        return change(batch)
    if depth >= MAXIMUM_DEPTH:
        return batch
    if isinstance(batch, Mapping):
        changed = {key: transform(value, change, depth + 1) for key, value in batch.items()}
        return changed if type(batch) is dict else _rebuild_mapping(batch, changed)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(transform(value, change, depth + 1) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(transform(value, change, depth + 1) for value in batch)
    return batch


def _rebuild_mapping(original: Any, changed: dict[Any, Any]) -> Any:
    for key, value in changed.items():
        original[key] = value
    return original
