"""The peak of the host memory that a launch holds.

It varies with what else a process has loaded by then: libraries load on demand.
"""

from __future__ import annotations

from hotlap.records import Run

unit = "B"
smallest_change = 0.02


def of_run(run: Run) -> float:
    """0 if the system does not report it."""
    return float(run.host_peak_bytes)
