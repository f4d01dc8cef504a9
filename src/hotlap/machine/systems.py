"""The operating systems on which hotlap runs scripts, and the error on others."""

from __future__ import annotations

import sys

from hotlap.errors import HotlapError

_NAMES = {"darwin": "macOS", "win32": "Windows", "cygwin": "Cygwin"}


def require_linux(what: str) -> None:
    """Raise :class:`HotlapError` except on Linux, whose kernel can freeze, isolate and end a script.

    ``what`` is the subject of the sentence, for instance ``hotlap tune``.
    """
    if sys.platform == "linux":
        return
    raise HotlapError(
        f"{what} needs Linux: hotlap can run scripts only there. This is {_NAMES.get(sys.platform, sys.platform)}.",
        remedy="On this system `hotlap lint`, `new`, `trace`, `diff`, `report`, `history` and `export` work.",
    )
