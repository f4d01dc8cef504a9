"""The memory of an inference target at rest: model and engine are loaded, and no call was made yet.

The process of an engine also holds the torch model that it was made from; `hotlap export artefact` reports the memory
of its files alone. Libraries load on demand, so that it varies a little.
"""

from __future__ import annotations

from hotlap.records import Run

unit = "B"
smallest_change = 0.02


def of_run(run: Run) -> float:
    """0 where steps are no calls."""
    return float(run.resting_bytes)
