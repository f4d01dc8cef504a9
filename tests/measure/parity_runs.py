"""Runs with given losses, for tests of parity."""

from __future__ import annotations

import math
import random

from hotlap.records import (
    Ending,
    Run,
    Steps,
    Stopped,
)


def run(losses: list[float | None], *, ending: Ending | None = None, **changes: object) -> Run:
    bad = tuple(row for row, loss in enumerate(losses) if loss is not None and not math.isfinite(loss))
    readable = tuple(None if row in bad else loss for row, loss in enumerate(losses))
    return Run(steps=Steps(loss=readable, not_finite=bad), ending=ending or Stopped(), **changes)  # type: ignore[arg-type]


def curve(steps: int = 300, *, seed: int = 0, factor: float = 1.0, noise: float = 0.05) -> list[float | None]:
    """A falling loss with the noise of its batches."""
    source = random.Random(seed)
    return [factor * (1 + 3 * math.exp(-t / 80) + source.gauss(0, noise)) for t in range(steps)]
