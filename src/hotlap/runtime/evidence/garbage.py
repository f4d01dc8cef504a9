"""The pauses that Python's garbage collector makes in training steps."""

from __future__ import annotations

from hotlap.evidence import GarbagePauses
from hotlap.runtime.garbage_timer import GarbageTimer
from hotlap.runtime.interception import Interception
from hotlap.runtime.unit_clock import UnitClock


class GarbageWatch:
    """Counts and times collections in the observed steps."""

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        self._timer = GarbageTimer()

    def pause(self) -> None:
        """Count nothing from now on."""
        self._timer.counting = False

    def resume(self) -> None:
        """Count what comes from now on."""
        self._timer.counting = True

    def result(self) -> dict[str, object]:
        """The pauses of the observed steps."""
        timer = self._timer
        timer.remove()
        return {
            "garbage": GarbagePauses(
                collections=timer.collections,
                full_collections=timer.full_collections,
                seconds=timer.seconds,
                longest_seconds=timer.longest_seconds,
            )
        }
