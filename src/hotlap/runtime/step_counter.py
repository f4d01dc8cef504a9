"""How many steps this process has done, where the controller can read it at any moment and after any end."""

from __future__ import annotations

import mmap
import os
from collections.abc import MutableSequence
from pathlib import Path

from hotlap.records import STEP_COUNTER_BYTES, STEP_COUNTER_PREFIX


def open_counter(run_directory: Path) -> MutableSequence[int] | memoryview[int]:
    """One number, at index 0, shared with the controller by a file of this process in the run's folder.

    It is memory: setting it takes no system call, works with all descriptors closed, and what was set last outlives the
    process. A plain list where the file cannot be made; the controller then knows less.
    """
    try:
        path = run_directory / f"{STEP_COUNTER_PREFIX}{os.getpid()}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Written, not only made longer: touching a page that a full disk cannot hold would end the process.
            os.write(descriptor, bytes(STEP_COUNTER_BYTES))
            shared = mmap.mmap(descriptor, STEP_COUNTER_BYTES)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return [0]
    return memoryview(shared).cast("Q")
