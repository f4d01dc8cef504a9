"""The rates of products in which one side is much shorter than the others, as with small batches.

Runs in the child process of :mod:`hotlap.machine.ceilings`. A layer of n x n weights multiplies a batch of b rows by
them (``rows`` are short), and the gradient of its weights is a product over these b rows (``common`` is the short
side). Each call reads or writes all of a large matrix for few operations, and libraries rearrange matrices first, so
that a format reaches another share of its peak rate than with square matrices.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from hotlap.machine.products import DeviceClock
from hotlap.records import FlatRate, ShortSide

if TYPE_CHECKING:
    import torch

_SHORT_SIDES = (8, 32, 128)
_SIDES = (512, 2048)
_ROUNDS = 4
_PRODUCTS_PER_TRY_ON_DEVICE = 8


def measure_flat_products(
    device: str, formats: Sequence[str], clock: DeviceClock, limit_seconds: float
) -> tuple[FlatRate, ...]:
    """Time as many shapes as fit into the limit, in all of these formats that this torch supports, in turns."""
    end = time.perf_counter() + limit_seconds
    found: list[FlatRate] = []
    for side in _SIDES:
        for short_side in _SHORT_SIDES:
            for short in get_args(ShortSide):
                if time.perf_counter() > end:
                    return tuple(found)
                found += _rates(device, formats, clock, short, short_side, side)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Product:
    """Two matrices and their product, multiplied so many times per try."""

    in_tf32: bool
    left: torch.Tensor
    right: torch.Tensor
    result: torch.Tensor
    repeats: int

    def compute(self) -> None:
        import torch

        torch.set_float32_matmul_precision("high" if self.in_tf32 else "highest")
        for _ in range(self.repeats):
            torch.mm(self.left, self.right, out=self.result)


def _rates(
    device: str, formats: Sequence[str], clock: DeviceClock, short: ShortSide, short_side: int, side: int
) -> Iterator[FlatRate]:
    import torch

    shapes = ((short_side, side), (side, side)) if short == "rows" else ((side, short_side), (short_side, side))
    repeats = _PRODUCTS_PER_TRY_ON_DEVICE if device == "cuda" else 1
    operations = 2.0 * short_side * side * side * repeats
    products: dict[str, _Product] = {}
    for name in formats:
        dtype = getattr(torch, "float32" if name == "tf32" else name)
        left, right = (torch.randn(shape, device=device).to(dtype) for shape in shapes)
        try:
            products[name] = _Product(name == "tf32", left, right, torch.mm(left, right), repeats)
        except RuntimeError:
            continue
    rounds = [{name: clock.seconds(it.compute) for name, it in products.items()} for _ in range(1 + _ROUNDS)]
    torch.set_float32_matmul_precision("highest")
    for name in products:
        seconds = min(it[name] for it in rounds[1:])  # the first round prepares the kernels
        yield FlatRate(
            key=f"{device}:{name}",
            short=short,
            short_side=short_side,
            side=side,
            flops_per_second=operations / seconds,
        )
