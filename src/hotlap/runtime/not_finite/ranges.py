"""The extremes of tensors, and whether all their numbers are finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import torch

from hotlap.records import NumberRange

Extremes: TypeAlias = tuple[float, float]
"""The smallest and the largest number of a tensor; both are NaN if any number is."""

MOST_ROWS = 5
_PIECE = 2**24
_WIDE = 1e30
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__
_REDUCIBLE = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


def carrier(tensor: Any) -> torch.Tensor | None:
    """The plain tensor that stores the numbers.

    None if no number can be NaN (the zeros of forward-mode differentiation have no memory), or none can be read (fake,
    quantised, nested but not jagged, or of a class with its own dispatch).
    """
    if not isinstance(tensor, torch.Tensor):
        return None
    if type(tensor).__torch_dispatch__ is not _PLAIN_DISPATCH:
        own = "_values" if tensor.is_nested else "_local_tensor"  # the own part of a distributed tensor
        return carrier(getattr(tensor, own, None))
    if tensor.is_nested:
        return None
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta or tensor._is_zerotensor():
        return None
    if tensor.layout is torch.sparse_coo:
        return tensor._values()
    return tensor if tensor.layout is torch.strided else None


def memory(tensor: torch.Tensor) -> tuple[int, int]:
    """The storage of a plain tensor (shared by views), and its size in bytes."""
    storage = tensor.untyped_storage()
    return int(storage._cdata), int(storage.nbytes())


def extremes(tensor: Any) -> Extremes | None:
    """The extremes; None if no number can be read."""
    plain = carrier(tensor)
    if plain is None or plain.numel() == 0:
        return None
    low, high = torch.aminmax(_reducible(plain))
    found: list[float] = torch.stack((low, high)).tolist()
    return found[0], found[1]


def is_finite(found: Extremes | None) -> bool:
    """Whether all numbers with these extremes are finite."""
    return found is None or (math.isfinite(found[0]) and math.isfinite(found[1]))


def has_nan(found: Extremes | None) -> bool:
    """Whether NaN is among the numbers with these extremes."""
    return found is not None and math.isnan(found[0])


def is_huge(found: Extremes | None, tensor: Any) -> bool:
    """Whether an extreme is finite, but its square overflows the tensor's type.

    For float16, whose largest square is that of 255, the limit is a quarter of its largest number.
    """
    plain = carrier(tensor)
    if found is None or plain is None or not is_finite(found):
        return False
    dtype = plain.dtype.to_real() if plain.is_complex() else plain.dtype
    most = torch.finfo(dtype).max
    limit = math.sqrt(most) if most > _WIDE else most / 4
    return max(-found[0], found[1]) >= limit


def all_finite(tensors: Iterable[Any]) -> bool:
    """Whether all of many tensors are finite; synchronises with each device once."""
    sums: dict[torch.device, torch.Tensor] = {}
    for plain in _plain(tensors):
        low, high = torch.aminmax(_reducible(plain))
        none_if_finite = (low * 0 + high * 0).double()
        sums[plain.device] = sums[plain.device] + none_if_finite if plain.device in sums else none_if_finite
    return all(it.item() == 0 for it in sums.values())


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured: then nothing may be read from the device."""
    return bool(torch.cuda.is_initialized()) and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


def describe(tensor: Any, name: str = "") -> NumberRange:
    """The summary of a tensor."""
    plain = carrier(tensor)
    if plain is None:
        return NumberRange(name=name, dtype=_dtype(tensor), shape=tuple(tensor.shape), numbers=0)
    nan = infinite = 0
    low, high = math.inf, -math.inf
    for piece in torch.split(_reducible(plain).reshape(-1), _PIECE):
        if piece.numel() == 0:
            continue
        finite = torch.isfinite(piece)
        nan += int(torch.isnan(piece).sum())
        infinite += int(torch.isinf(piece).sum())
        low = min(low, float(piece.where(finite, math.inf).min()))
        high = max(high, float(piece.where(finite, -math.inf).max()))
    return NumberRange(
        name=name,
        dtype=_dtype(tensor),
        shape=tuple(int(size) for size in tensor.shape),
        numbers=plain.numel(),
        nan=nan,
        infinite=infinite,
        low=low if math.isfinite(low) else None,
        high=high if math.isfinite(high) else None,
        rows=_rows(plain) if nan + infinite else (),
    )


def finite_range(tensor: Any, found: Extremes, name: str) -> NumberRange:
    """The summary of a tensor that was finite when these extremes were taken, and changed since."""
    return NumberRange(
        name=name,
        dtype=_dtype(tensor),
        shape=tuple(int(size) for size in tensor.shape),
        numbers=tensor.numel(),
        low=found[0],
        high=found[1],
    )


def _plain(tensors: Iterable[Any]) -> Iterator[torch.Tensor]:
    for tensor in tensors:
        plain = carrier(tensor)
        if plain is not None and plain.numel() > 0:
            yield plain


def _reducible(plain: torch.Tensor) -> torch.Tensor:
    """Numbers for which torch has a minimum: complex ones as pairs, eight-bit ones as float32."""
    plain = plain.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    return plain if plain.dtype in _REDUCIBLE else plain.float()


def _rows(plain: torch.Tensor) -> tuple[int, ...]:
    if plain.dim() == 0:
        return ()
    bad = ~torch.isfinite(plain.detach())
    rows = bad.reshape(plain.shape[0], -1).any(dim=1).nonzero().flatten()[:MOST_ROWS]
    return tuple(int(row) for row in rows.tolist())


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
