"""A block that goes on until the script has evaluated once, so that a launch's peak of memory is that of a run."""

from __future__ import annotations

import time

from hotlap.records import AwaitEvaluation
from hotlap.runtime.instruments.api import Place
from hotlap.runtime.stopwatch import EVALUATION


def install(place: Place, asked: AwaitEvaluation) -> None:
    """From the end of the first block on, which the warm-up has."""
    hooks = place.hooks
    seen = False
    until = 0.0

    def was_outside(phase: int) -> None:
        nonlocal seen
        seen |= phase == EVALUATION and place.clock.steps_done > 0

    def evaluated_once() -> None:
        nonlocal seen
        seen = True

    def holds() -> bool:
        nonlocal until
        until = until or time.perf_counter() + asked.most_seconds
        return not seen and time.perf_counter() < until

    hooks.was_outside.append(was_outside)
    hooks.evaluated_once.append(evaluated_once)
    hooks.holds_block.append(holds)
