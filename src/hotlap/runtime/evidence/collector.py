"""The interface between collectors of evidence and the recorder."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Collector(Protocol):
    """One kind of evidence, gathered through the hooks of the interception and the clock that it was made with.

    It is made before the script's first line that matters, and must cost the script no result: no random number, no
    device wait, no reference that keeps a tensor alive.
    """

    def result(self) -> dict[str, object]:
        """What was seen, as fields of :class:`hotlap.evidence.RunEvidence`. Called once, when the process ends."""


@runtime_checkable
class Counter(Collector, Protocol):
    """A collector of calls that are set against the number of steps in which they were counted.

    It is made paused. The recorder lets it count from the end of the first step on (what comes before the loop is not
    the loop's doing) and leaves out the steps that ran under the profiler.
    """

    def pause(self) -> None:
        """Count nothing from now on; called at the end of a step."""

    def resume(self) -> None:
        """Count what comes from now on; called when a step begins."""
