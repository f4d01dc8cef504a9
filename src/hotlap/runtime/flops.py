"""Counting the floating-point operations of a step, sparse products by the numbers that they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def flop_counter(torch: Any) -> Any:
    """A context that counts operations, two for a multiplication with its addition.

    torch's own counter takes every matrix for a dense one: a graph's adjacency with twenty neighbours a node would
    count as many thousands.
    """
    from torch.utils.flop_counter import FlopCounterMode

    aten = torch.ops.aten
    formulas = {
        aten.mm: _raw(lambda left, right, **_: _of_product(torch, left, right)),
        aten.addmm: _raw(lambda added, left, right, **_: _of_product(torch, left, right)),
        aten._sparse_addmm: _raw(lambda added, left, right, **_: _of_product(torch, left, right)),
    }
    return FlopCounterMode(display=False, custom_mapping=formulas)


def _raw(formula: Callable[..., int]) -> Callable[..., int]:
    """Have the counter pass tensors, not only their shapes."""
    formula._get_raw = True  # type: ignore[attr-defined]
    return formula


def _of_product(torch: Any, left: Any, right: Any) -> int:
    """Each number that a sparse matrix holds is multiplied with a row or a column of the other. Of two sparse matrices
    nothing is counted: their operations depend on where their numbers are."""
    left_held, right_held = (_numbers_held(torch, it) for it in (left, right))
    if left_held is not None and right_held is not None:
        return 0
    if left_held is not None:
        return 2 * left_held * int(right.shape[1])
    if right_held is not None:
        return 2 * right_held * int(left.shape[0])
    return 2 * int(left.shape[0]) * int(left.shape[1]) * int(right.shape[1])


def _numbers_held(torch: Any, matrix: Any) -> int | None:
    """How many numbers a sparse matrix holds; None for a dense one."""
    if matrix.layout is torch.sparse_coo:
        return int(matrix._values().numel())
    compressed = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
    return int(matrix.values().numel()) if matrix.layout in compressed else None
