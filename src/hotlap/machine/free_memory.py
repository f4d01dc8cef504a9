"""The main memory that is still available to this process: on the machine, and within its control groups."""

from __future__ import annotations

from pathlib import Path

import psutil

from hotlap.machine import control_groups


def available_share(root: Path = Path("/")) -> float:
    """The share of the usable memory that is still available, between 0 and 1.

    The smallest share counts, of the machine and of each control group that limits it. Page cache that the kernel can
    drop counts as available.
    """
    machine = psutil.virtual_memory()
    shares = [machine.available / machine.total, *control_groups.available_memory_shares(root)]
    return max(0.0, min(shares))
