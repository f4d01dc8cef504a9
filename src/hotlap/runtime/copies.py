"""Timing the copies from host to device, which scripts make with ``tensor.to(device)`` and ``tensor.cuda()``.

Wrapped only where torch was built for an accelerator: a CPU-only torch has no such copies and keeps its own
methods.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from hotlap.runtime.stopwatch import HOST_TO_DEVICE, OTHER
from hotlap.runtime.unit_clock import UnitClock

Replace: TypeAlias = Callable[[Any, str, Any], None]


def time_copies(torch: Any, clock: UnitClock, replace: Replace = setattr) -> None:
    """Record the time of copies to the device as a phase of its own; ``replace`` swaps torch's methods for ours."""
    if not any(getattr(torch.version, name, None) for name in ("cuda", "hip", "xpu")):
        return
    for name in ("to", "cuda", "xpu"):
        if not hasattr(torch.Tensor, name):
            continue
        replace(torch.Tensor, name, _timed(getattr(torch.Tensor, name), torch.compiler.is_compiling, clock))


def _timed(method: Callable[..., Any], is_compiling: Callable[[], bool], clock: UnitClock) -> Callable[..., Any]:
    trainer = threading.get_ident()

    @functools.wraps(method)
    def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or tensor.device.type != "cpu" or not clock.follows_device:
            return method(tensor, *args, **kwargs)
        if threading.get_ident() != trainer:  # phases are those of one thread: other copies take none of its time
            return method(tensor, *args, **kwargs)
        clock.enter(HOST_TO_DEVICE)
        copied = False
        try:
            result = method(tensor, *args, **kwargs)
            copied = result.device.type != "cpu"
            return result
        finally:
            clock.leave(as_phase=HOST_TO_DEVICE if copied else OTHER)

    return call
