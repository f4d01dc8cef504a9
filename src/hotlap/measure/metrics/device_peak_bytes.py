"""The peak of the accelerators' memory that a launch allocates for tensors.

A caching allocator requests the same blocks in the same order, so that the peak hardly varies between launches; it
rounds blocks up, so that very small changes are meaningless.
"""

from __future__ import annotations

from hotlap.records import Run

unit = "B"
smallest_change = 0.02


def of_run(run: Run) -> float:
    """0 without an accelerator."""
    return float(run.device_peak_bytes)
