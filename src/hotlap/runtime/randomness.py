"""The states of the random generators that a script may draw from in this process."""

from __future__ import annotations

import random
import sys
from typing import Any


def seed_everything(torch: Any, seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators, as a careful script would at its start. A script that seeds
    itself overrides this."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def states(torch: Any) -> tuple[Any, ...]:
    """All generator states, to be compared or put back with :func:`restore`."""
    numpy = sys.modules.get("numpy")
    return (
        random.getstate(),
        torch.get_rng_state(),
        numpy.random.get_state() if numpy is not None else None,
    )


def restore(torch: Any, saved: tuple[Any, ...]) -> None:
    """Put back what :func:`states` returned."""
    random.setstate(saved[0])
    torch.set_rng_state(saved[1])
    numpy = sys.modules.get("numpy")
    if numpy is not None and saved[2] is not None:
        numpy.random.set_state(saved[2])


def differ(torch: Any, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Whether anything was drawn between the two moments."""
    if before[0] != after[0] or not torch.equal(before[1], after[1]):
        return True
    if before[2] is None or after[2] is None:
        return before[2] is not after[2]
    return bool((before[2][1] != after[2][1]).any() or before[2][2:] != after[2][2:])
