"""Counting the floating-point operations of a step, sparse products by the numbers that they hold.

The formulas are those of torch's ``FlopCounterMode``, which cannot be used itself: it registers hooks on the inputs of
modules, with which :func:`torch.autograd.grad` of such an input fails (a penalty on gradients), and nested tensors fail
in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

_Formula = Callable[..., int]
_UNKNOWN = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a formula raises for arguments that its author did not think of."""


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that counts operations, two for a multiplication with its addition; it lets every operation do what it
    does without it.

    torch's own formulas take every matrix for a dense one: a graph's adjacency with twenty neighbours a node would
    count as many thousands.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        aten = torch.ops.aten
        self._formulas: Mapping[Any, _Formula] = {
            **flop_registry,
            aten.mm: lambda left, right, **_: _of_product(left, right),
            aten.addmm: lambda added, left, right, **_: _of_product(left, right),
            aten._sparse_addmm: lambda added, left, right, **_: _of_product(left, right),
        }
        self._counted = 0
        self._is_known = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """What is compiled first while operations are counted is compiled, as without it; torch skips it otherwise, and
        what must be compiled, such as flex attention, would fail."""
        return True

    @property
    def flops(self) -> float | None:
        """The operations so far; None if there were none, or some could not be counted."""
        return float(self._counted) if self._counted and self._is_known else None

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count what the operation does, or those that it is made of.

        Of tensors with a dispatch of their own, only what they show as a whole: no operation is taken apart before they
        see it. Nested ones show nothing that could be counted, nor do operations on functions (``torch.cond``).
        """
        given = dict(kwargs or {})
        formula = self._formulas.get(getattr(func, "_overloadpacket", None))
        if not isinstance(func, torch._ops.OpOverload) or any(map(_is_nested, args)):
            formula, self._is_known = None, False
        elif formula is None and not types:
            with self:
                made_of_others = func.decompose(*args, **given)
            if made_of_others is not NotImplemented:
                return made_of_others
        result = func(*args, **given)
        if formula is not None:
            self._count(formula, args, given, result)
        return result

    def _count(self, formula: _Formula, args: tuple[Any, ...], given: Mapping[str, Any], result: Any) -> None:
        try:
            self._counted += int(formula(*args, **given, out_val=result))
        except _UNKNOWN:
            self._is_known = False


def _is_nested(argument: object) -> bool:
    return isinstance(argument, torch.Tensor) and argument.is_nested


def _of_product(left: torch.Tensor, right: torch.Tensor) -> int:
    """Each number that a sparse matrix holds is multiplied with a row or a column of the other. Of two sparse matrices
    nothing is counted: their operations depend on where their numbers are."""
    left_held, right_held = (_numbers_held(it) for it in (left, right))
    if left_held is not None and right_held is not None:
        return 0
    if left_held is not None:
        return 2 * left_held * int(right.shape[1])
    if right_held is not None:
        return 2 * right_held * int(left.shape[0])
    return 2 * int(left.shape[0]) * int(left.shape[1]) * int(right.shape[1])


def _numbers_held(matrix: torch.Tensor) -> int | None:
    """How many numbers a sparse matrix holds; None for a dense one."""
    if matrix.layout is torch.sparse_coo:
        return int(matrix._values().numel())
    compressed = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
    return int(matrix.values().numel()) if matrix.layout in compressed else None
