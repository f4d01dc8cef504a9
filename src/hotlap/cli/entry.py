"""What the installed command ``hotlap`` calls.

A command that only reads and prints is over in a tenth of a second. It does without what would take a good part of
that: looking for rings of garbage, of which it makes none, and taking the interpreter down in good order, when all that
it has written is flushed.
"""

from __future__ import annotations

import gc
import os
import sys

READS_ONLY = frozenset({"lint", "rule", "trace"})
"""Commands that leave nothing to be tidied up at exit: whatever they started has ended by then."""


def run() -> int:
    """Run the command line; the exit code."""
    quick = not READS_ONLY.isdisjoint(sys.argv[1:2])
    if quick:
        gc.disable()
    from hotlap.cli.main import main

    code = main()
    if quick:
        sys.stderr.flush()
        os._exit(code)
    return code
