"""The host's activity at a moment on one thread: phase of training, operator, module, line of the user's code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from hotlap.traces.dialects import LOADER, MODULE_PREFIX, is_backward
from hotlap.traces.hosts import HostActivity
from hotlap.traces.memory_records import Phase
from hotlap.traces.timeline import HostEvents, Timeline

_OPTIMIZER = re.compile(r"^Optimizer\.(?:step|zero_grad)#")


class Moment(NamedTuple):
    """``operator`` is the outermost, ``module`` and ``place`` are the innermost; they are empty where the trace has
    none."""

    phase: Phase
    operator: str = ""
    module: str = ""
    place: str = ""


class Moments:
    """The host's activity at any moment of one trace."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._activity = HostActivity(timeline, range(len(timeline.threads)))

    def at(self, moment: int, thread: int) -> Moment:
        """Find a thread's activity at a moment."""
        activity, modules = self._activity, self._timeline.modules
        around = modules.around(moment, thread)
        return Moment(
            phase=self._phase(moment, thread),
            operator=activity.operator_at(moment, thread),
            module=modules.name_of(around[-1]).removeprefix(MODULE_PREFIX) if around else "",
            place=activity.place_at(moment, thread),
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
