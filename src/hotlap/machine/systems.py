"""The operating systems on which hotlap runs scripts, and the error on all others."""

from __future__ import annotations

import sys

from hotlap.errors import HotlapError

_NAMES = {"darwin": "macOS", "win32": "Windows", "cygwin": "Cygwin"}


def require_linux(what: str) -> None:
    """Raise :class:`HotlapError` on any system but Linux: freezing, isolating and ending a script rest on its kernel.

    ``what`` begins the sentence, for instance ``hotlap tune``.
    """
    if sys.platform == "linux":
        return
    raise HotlapError(
        f"{what} needs Linux: only there can hotlap run scripts. This is {_NAMES.get(sys.platform, sys.platform)}.",
        remedy="Here `hotlap lint`, `new`, `trace`, `diff`, `report`, `history` and `export` work.",
    )
