"""The memory of an inference target at rest: everything is loaded, and no call was made yet."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from types import ModuleType
from typing import Any

_RESIDENT = 1
"""The field of ``/proc/self/statm`` that counts resident pages."""


def resting_bytes(torch: ModuleType, model: Any) -> int:
    """What tensors hold of the model's device or, on a CPU, what the process holds of memory; 0 if that is unknown."""
    gc.collect()
    device = next((it.device.type for it in model.parameters()), "cpu")
    if device != "cpu":
        of_device = getattr(getattr(torch, device, None), "memory_allocated", None)
        return int(of_device()) if of_device is not None else 0
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[_RESIDENT])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
