"""Which blocks of a model to recompute within a budget of time: a knapsack over measured costs. Not a lever itself."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from hotlap.errors import PlanError
from hotlap.records import BlockCost

_CELLS = 1000
_LIST = re.compile(r"\d{1,6}(,\d{1,6})*")


def blocks_to_recompute(costs: Sequence[BlockCost], most_seconds: float) -> tuple[int, ...]:
    """The blocks that free most bytes of all whose forward passes together take at most ``most_seconds``.

    Exact up to a thousandth of the budget, which is never exceeded: seconds are rounded up.
    """
    if most_seconds <= 0:
        return ()
    # What exceeds the budget by however much weighs one cell more than there are.
    weights = [math.ceil(min(_CELLS + 1, max(0.0, it.forward_seconds * _CELLS / most_seconds))) for it in costs]
    best: list[tuple[int, tuple[int, ...]]] = [(0, ())] * (_CELLS + 1)
    for number, (cost, weight) in enumerate(zip(costs, weights, strict=True)):
        if cost.saved_bytes <= 0:
            continue
        for room in range(_CELLS, weight - 1, -1):
            freed, chosen = best[room - weight]
            if freed + cost.saved_bytes > best[room][0]:
                best[room] = freed + cost.saved_bytes, (*chosen, number)
    return best[_CELLS][1]


def listed(blocks: Sequence[int]) -> str:
    """The numbers as a setting stores them: ``0,2,5``."""
    return ",".join(map(str, blocks))


def numbers_of(text: str) -> tuple[int, ...]:
    """The numbers of such a list. Raises :class:`PlanError`."""
    if not _LIST.fullmatch(text):
        raise PlanError(f"activation-checkpointing.blocks is {text[:80]!r}.", remedy="Give numbers, such as 0,2,5.")
    return tuple(map(int, text.split(",")))
