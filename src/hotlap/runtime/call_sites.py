"""Which line of the user's code called: the nearest frame that is neither torch's, ours nor a library's."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from hotlap.records import CallSite, SiteRole

_LIBRARIES = (
    *sorted({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}),
    "<frozen",
    "<string",
    "<eval_with_key>",  # what torch.fx generates
)
_OWN = tuple(str(Path(__file__).parent.parent / room) for room in ("runtime", "levers"))
MAXIMUM_DEPTH = 60


def is_own(file: str) -> bool:
    """Whether a code object's file is hotlap's."""
    return file.startswith(_OWN)


def is_users(file: str) -> bool:
    """Whether a code object's file is the user's: neither hotlap's nor a library's."""
    return not file.startswith((*_OWN, *_LIBRARIES))


def user_site(role: SiteRole, what: str = "") -> CallSite | None:
    """The user's innermost line on the stack, or None when no frame is the user's (a framework's command line)."""
    frame = sys._getframe(1)
    for _ in range(MAXIMUM_DEPTH):
        file = frame.f_code.co_filename
        if is_users(file):
            return CallSite(role=role, file=file, line=frame.f_lineno, function=frame.f_code.co_name, what=what)
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def user_frames() -> Iterator[FrameType]:
    """The user's frames on the stack of this thread, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAXIMUM_DEPTH):
        if frame is None:
            return
        if is_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back
