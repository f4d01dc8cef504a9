"""Python's clocks, set to simulated time.

Modules that wait for other threads and processes keep the real one: a wait that ends by a clock which stands still
would never end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from simulated.library import Library

_NANOSECONDS = 1_000_000_000
_CLOCKS = ("perf_counter", "monotonic", "process_time", "thread_time", "time")


def install(library: Library) -> None:
    """Replace the functions of :mod:`time`. What was imported from there by name before stays real."""
    _import_what_waits()
    _replace(library, time.sleep)


def _import_what_waits() -> None:
    import asyncio
    import concurrent.futures.process
    import multiprocessing.connection
    import multiprocessing.queues
    import queue
    import selectors
    import socket
    import subprocess
    import threading

    del asyncio, concurrent, multiprocessing, queue, selectors, socket, subprocess, threading


def _replace(library: Library, really_sleep: Callable[[float], None]) -> None:
    now = library.now

    def sleep(seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        if library.counts_here():
            library.spend(seconds * _NANOSECONDS)
        else:
            really_sleep(seconds)

    time.sleep = sleep
    began = now()
    for name in _CLOCKS:
        # They go on from where they are, so that what began before torch was imported has not taken a day.
        _count_from(name, getattr(time, f"{name}_ns")() - began, now)


def _count_from(name: str, before: int, now: Callable[[], int]) -> None:
    setattr(time, f"{name}_ns", lambda: before + now())
    setattr(time, name, lambda: (before + now()) / _NANOSECONDS)
