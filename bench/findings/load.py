"""Other work on the same cores, as on a machine that is shared."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

_SPIN: Final = """
import os, sys, time
parent = int(sys.argv[1])
while os.getppid() == parent:
    until = time.perf_counter() + 1.0
    while time.perf_counter() < until:
        pass
"""
"""Keep a core busy until the parent process has ended."""


@contextmanager
def busy_cores(cores: int) -> Iterator[None]:
    """Keep this many cores busy while the block runs."""
    with ExitStack() as stack:
        for _ in range(cores):
            child = stack.enter_context(subprocess.Popen([sys.executable, "-S", "-c", _SPIN, str(os.getpid())]))
            stack.callback(child.kill)
        yield
