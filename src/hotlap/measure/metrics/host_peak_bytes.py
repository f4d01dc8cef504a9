"""The most that a launch holds of the host's memory.

It varies with whatever else a process has loaded by then: libraries load on demand.
"""

from __future__ import annotations

from hotlap.records import Run

unit = "B"
smallest_change = 0.02


def of_run(run: Run) -> float:
    """0 where the system does not say."""
    return float(run.host_peak_bytes)
