"""The floating-point operations of one step, counted once: it takes longer than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.runtime.compile_report import anything_compiled
from hotlap.runtime.roots import Roots

if TYPE_CHECKING:
    from hotlap.runtime.flops import FlopCounter

STEP_THAT_COUNTS_FLOPS = 3


class FlopsWatch:
    """Counts in the step after :data:`STEP_THAT_COUNTS_FLOPS` others, of a script that compiles nothing: what runs
    compiled shows none of its operations."""

    def __init__(self, torch: Any, roots: Roots) -> None:
        self._torch = torch
        self._roots = roots
        self._counter: FlopCounter | None = None
        self.flops: float | None = None

    def step_ended(self, steps_done: int) -> None:
        """Begin after the right step, and end after the next one."""
        if self._counter is not None:
            self._counter.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self.flops = None if self._compiles() else self._counter.flops
            self._counter = None
        elif steps_done == STEP_THAT_COUNTS_FLOPS and not self._compiles():
            from hotlap.runtime.flops import FlopCounter  # which imports torch

            self._counter = FlopCounter()
            self._counter.__enter__()  # type: ignore[no-untyped-call]

    def _compiles(self) -> bool:
        return anything_compiled(self._torch, *self._roots.all())
