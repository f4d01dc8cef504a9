"""How busy the cores are that a child may use, and waiting until others leave them alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil

from hotlap.machine import control_groups, processor
from hotlap.measure.disturbance import notable_load

_LOOK_SECONDS = 1.0
_QUIET_LOOKS = 2
"""So many checks in a row must find the cores idle, since there are pauses between two jobs of a test suite."""


def busy_seconds() -> float:
    """Core seconds that have been used so far of those that this process may use; what a hypervisor took away counts.

    Under a quota they are what all who share it have used. Else they are those of the cores that this process may be
    scheduled on, whoever used them.
    """
    group = _quota_group()
    shared = control_groups.used_seconds(group) if group is not None else None
    if shared is not None:
        return shared
    every = psutil.cpu_times(percpu=True)
    ours = [every[number] for number in processor.visible_cores() if number < len(every)]
    return sum(map(processor.busy_seconds, ours or every))


def wait_for_quiet(
    limit_seconds: float,
    *,
    busy: Callable[[], float] = busy_seconds,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait, up to a limit, until others use no notable part of the cores. Nothing of ours may run meanwhile."""
    notable, ends = notable_load(processor.cores_available()), clock() + limit_seconds
    quiet = 0
    while quiet < _QUIET_LOOKS and (left := ends - clock()) > 0:
        used, began = busy(), clock()
        sleep(min(_LOOK_SECONDS, left))
        load = (busy() - used) / max(1e-9, clock() - began)
        quiet = quiet + 1 if load < notable else 0


@cache
def _quota_group() -> Path | None:
    return control_groups.quota_group()
