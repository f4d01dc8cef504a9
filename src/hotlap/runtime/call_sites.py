"""Which line of the user's code called: the nearest frame that is neither torch's, ours nor a library's."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import FrameType

from hotlap.records import CallSite, FileDigest, SiteRole

_LIBRARIES = (
    *sorted({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}),
    "<frozen",
    "<string",
    "<eval_with_key>",  # what torch.fx generates
)
_OWN = tuple(str(Path(__file__).parent.parent / room) for room in ("runtime", "levers"))
_INSTALLED = ("/site-packages/", "/dist-packages/")
"""Folders of packages, wherever they are: a user's own, those of Debian, and of environments that share packages."""

MAXIMUM_DEPTH = 60


def is_own(file: str) -> bool:
    """Whether a code object's file is hotlap's."""
    return file.startswith(_OWN)


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Whether a code object's file is the user's: neither hotlap's nor a library's."""
    return not (file.startswith((*_OWN, *_LIBRARIES)) or is_installed(file) or file.startswith(_torch_folder()))


def is_installed(file: str) -> bool:
    """Whether a file is in a folder of installed packages."""
    return any(it in file for it in _INSTALLED)


def _torch_folder() -> str:
    """That of torch, which need not be installed where packages are: it may have been built in its own checkout."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return f"{Path(file).parent}/" if file else _OWN[0]


def user_site(role: SiteRole, what: str = "") -> CallSite | None:
    """The user's innermost line on the stack, or None when no frame is the user's (a framework's command line)."""
    frame = _user_frame(sys._getframe(1))
    if frame is None:
        return None
    code = frame.f_code
    return CallSite(role=role, file=code.co_filename, line=frame.f_lineno, function=code.co_name, what=what)


def exact_user_site(role: SiteRole, what: str = "") -> CallSite | None:
    """The same with the place of the call within its line, which takes longer to look up."""
    frame = _user_frame(sys._getframe(1))
    if frame is None:
        return None
    code = frame.f_code
    # One entry for each instruction of two bytes; all are None where Python was told to keep no columns.
    positions = next(islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    line, end_line, column, end_column = positions
    return CallSite(
        role=role,
        file=code.co_filename,
        line=line or frame.f_lineno,
        function=code.co_name,
        what=what,
        column=column,
        end_line=end_line,
        end_column=end_column,
    )


def digests(sites: Iterable[CallSite | None]) -> tuple[FileDigest, ...]:
    """What the files of the sites hold; one that cannot be read is left out."""
    found = []
    for file in sorted({it.file for it in sites if it is not None}):
        with suppress(OSError, ValueError):
            found.append(FileDigest(file=file, sha256=hashlib.sha256(Path(file).read_bytes()).hexdigest()))
    return tuple(found)


def _user_frame(frame: FrameType | None) -> FrameType | None:
    for _ in range(MAXIMUM_DEPTH):
        if frame is None or is_users(frame.f_code.co_filename):
            return frame
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
