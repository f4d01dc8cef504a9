"""The variables of the user's frames, read without a trace.

Reading a running function's variables has consequences before Python 3.13: ``frame.f_locals`` is a dictionary that the
frame keeps, with references to all that the variables held, and that ``locals()`` hands out as well. So it is emptied
again, and functions whose ``locals()`` somebody may hold are left alone.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from hotlap.runtime.call_sites import user_frames
from hotlap.runtime.evidence.emptied import Running

MOST_FRAMES = 8
_TAKES_LOCALS = frozenset({"locals", "vars", "eval", "exec", "dir"})
_REFERENCES_OF_OURS = 3  # the frame's, this module's variable, and the argument of the function that counts


@dataclass(frozen=True, slots=True)
class Namespace:
    """The variables of one frame, or the globals that it sees."""

    file: str
    function: str
    variables: list[tuple[str, Any]]


def running_on_the_stack() -> tuple[Running, ...]:
    """The user's functions that are running, the innermost first."""
    frames = zip(user_frames(), range(MOST_FRAMES), strict=False)
    return tuple(Running(frame.f_code, frame.f_lasti) for frame, _ in frames)


def namespaces() -> Iterator[Namespace]:
    """What the user's frames see, the innermost first; each namespace once."""
    seen: set[int] = set()
    for frame, _ in zip(user_frames(), range(MOST_FRAMES), strict=False):
        code = frame.f_code
        if code.co_flags & inspect.CO_OPTIMIZED and not _TAKES_LOCALS.intersection(code.co_names):
            yield Namespace(code.co_filename, code.co_qualname, _locals(frame))
        if id(frame.f_globals) not in seen:
            seen.add(id(frame.f_globals))
            yield Namespace(code.co_filename, "<module>", list(frame.f_globals.items()))


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    found = frame.f_locals
    variables = list(found.items())
    if type(found) is dict and sys.getrefcount(found) <= _REFERENCES_OF_OURS:
        found.clear()
    return variables
