"""The mean time of the evaluations that a launch made between its training steps.

It varies with what else the machine does, as a time of one launch; the first evaluation of a process also pays for what
is loaded on demand, and for the start of a loader's workers.
"""

from __future__ import annotations

from statistics import fmean, median

from hotlap.records import Run

unit = "s"
smallest_change = 0.02

_LEAST = 1e-3
"""As a share of the step: less time than this is a call that evaluated nothing."""


def of_run(run: Run) -> float:
    """0 if no evaluation was seen after the first step."""
    if not run.steps.evaluation_seconds:
        return 0.0
    least = _LEAST * median(run.steps.wall_seconds)
    found = [it for it in run.steps.evaluation_seconds[1:] if it > least]
    return fmean(found) if found else 0.0
