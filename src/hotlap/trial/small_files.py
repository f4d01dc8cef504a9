"""Reading the small files that processes of a run leave for the controller, whatever a script may have put there."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_small(path: Path, limit_bytes: int) -> bytes | None:
    """The first ``limit_bytes`` of a regular file; None where there is none that can be read, or where it is a link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, limit_bytes) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
