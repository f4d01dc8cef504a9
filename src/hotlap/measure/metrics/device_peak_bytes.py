"""The most that a launch holds of the accelerators' memory, in tensors.

A caching allocator asks for the same blocks in the same order, so that the peak hardly varies between launches; it
rounds blocks up, so that the smallest changes say nothing.
"""

from __future__ import annotations

from hotlap.records import Run

unit = "B"
smallest_change = 0.02


def of_run(run: Run) -> float:
    """0 without an accelerator."""
    return float(run.device_peak_bytes)
