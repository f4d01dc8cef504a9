"""The progress events of a search."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate
from hotlap.records.outcomes import Outcome

Stage: TypeAlias = Literal[
    "machine", "baseline", "ceilings", "profile", "screening", "trial", "parity", "ablation", "verification", "end"
]


class Progress(Record, frozen=True, kw_only=True):
    """One thing that just began or became known; a live view needs nothing else.

    After ``replicates_done`` of ``replicates_planned``, so many as ``replicates_at_once`` were begun. ``running`` is
    the interval so far of what is being tried; ``best`` the speedup of the plan so far. ``peak_bytes`` is its memory so
    far, the device's where there is one, and ``baseline_peak_bytes`` that of what it is compared with (0: not known).
    ``launches`` of the script were made so far; ``launches_planned`` in ``seconds_planned`` is the plan for the whole
    study (0: none yet, or a time that is unknown).
    """

    stage: Stage
    text: str
    lever: str = ""
    outcome: Outcome | None = None
    running: Estimate | None = None
    replicates_done: int = 0
    replicates_planned: int = 0
    replicates_at_once: int = 1
    best: Estimate | None = None
    peak_bytes: int = 0
    baseline_peak_bytes: int = 0
    launches: int = 0
    launches_planned: int = 0
    seconds_planned: float = 0.0
    spent_seconds: float = 0.0
    budget_seconds: float | None = None
