"""Interception of the calls that copy batches to the device: `Tensor.to` and `Tensor.cuda`. Not a lever itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeAlias

# A plain copy: the tensor, then the arguments of `to` or `cuda`.
Copy: TypeAlias = Callable[..., Any]
# The replacement: called with the tensor, the plain copy, and its arguments.
Answer: TypeAlias = Callable[[Any, Copy, tuple[Any, ...], dict[str, Any]], Any]

DEEPEST = 4


def tensors_in(torch: ModuleType, batch: Any, depth: int = 0) -> Iterator[Any]:
    """Yield every tensor of a batch of nested lists, tuples and mappings, in a stable order."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif depth < DEEPEST and isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_in(torch, value, depth + 1)
    elif depth < DEEPEST and isinstance(batch, (tuple, list)):
        for value in batch:
            yield from tensors_in(torch, value, depth + 1)


def answer_copies(torch: ModuleType, known: Any, answer: Answer) -> None:
    """Let ``answer`` make the copies of those tensors that ``known`` contains.

    ``known`` is a weak dictionary keyed by tensors' identity. All other tensors, and code that torch is compiling, use
    the plain methods.
    """
    is_compiling = torch.compiler.is_compiling
    for name in ("to", "cuda"):
        plain: Copy = getattr(torch.Tensor, name)

        def copy(tensor: Any, *args: Any, _plain: Copy = plain, **kwargs: Any) -> Any:
            if is_compiling() or tensor not in known:
                return _plain(tensor, *args, **kwargs)
            return answer(tensor, _plain, args, kwargs)

        setattr(torch.Tensor, name, functools.wraps(plain)(copy))


def weak_table() -> Any:
    """A dictionary keyed by tensors' identity that does not keep them alive."""
    from torch.utils.weak import WeakIdKeyDictionary

    return WeakIdKeyDictionary()
