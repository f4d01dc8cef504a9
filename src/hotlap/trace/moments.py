"""What the host did at a moment on one thread: phase of training, operator, line of the user's code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from hotlap.trace.dialects import LOADER, is_backward
from hotlap.trace.hosts import HostActivity
from hotlap.trace.memory_records import Phase
from hotlap.trace.timeline import HostEvents, Timeline

_OPTIMIZER = re.compile(r"^Optimizer\.(?:step|zero_grad)#")


class Moment(NamedTuple):
    """``operator`` is the outermost and ``place`` the innermost; both are empty where the trace has none."""

    phase: Phase
    operator: str
    place: str


class Moments:
    """Answers for any moment of one trace."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._activity = HostActivity(timeline, range(len(timeline.threads)))

    def at(self, moment: int, thread: int) -> Moment:
        """What a thread did at a moment."""
        activity = self._activity
        return Moment(
            self._phase(moment, thread), activity.operator_at(moment, thread), activity.place_at(moment, thread)
        )

    def _phase(self, moment: int, thread: int) -> Phase:
        operators, annotations = self._timeline.operators, self._timeline.annotations
        if _inside(annotations, _OPTIMIZER.search, moment, thread):
            return "optimizer"
        if any(_inside(it, LOADER.search, moment, thread) for it in (annotations, operators, self._timeline.frames)):
            return "data_loader"
        if _inside(operators, is_backward, moment, thread):
            return "backward"
        return "forward" if operators.around(moment, thread) else "unknown"


def _inside(table: HostEvents, fits: Callable[[str], object], moment: int, thread: int) -> bool:
    names = table.named(fits)
    return bool(names) and any(table.name[it] in names for it in table.around(moment, thread))
