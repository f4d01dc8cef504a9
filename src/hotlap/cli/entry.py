"""The entry point of the installed command ``hotlap``.

Commands that only read and print skip garbage collection and the interpreter's shutdown, which take a
notable part of their time. Their output is flushed before they exit.
"""

from __future__ import annotations

import gc
import os
import sys

READS_ONLY = frozenset({"lint", "rule", "trace"})
"""Commands that need no clean-up at exit: whatever they started has ended by then."""


def run() -> int:
    """Run the command line and return the exit code."""
    quick = not READS_ONLY.isdisjoint(sys.argv[1:2])
    if quick:
        gc.disable()
    from hotlap.cli.main import main

    code = main()
    if quick:
        sys.stderr.flush()
        os._exit(code)
    return code
