"""The user's line that calls a function of a library or of C, by a profiler's table of who called whom."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import CodeType
from typing import TypeAlias

from hotlap.records import CallSite
from hotlap.runtime.call_sites import is_users
from hotlap.runtime.evidence.instructions import instructions

Code: TypeAlias = CodeType | str
"""What the profiler calls a function: its code, or the name of one that is written in C."""

Callers: TypeAlias = Mapping[Code, Mapping[Code, float]]
"""By function: who called it, and for how many seconds it ran for each of them."""

_DEEPEST = 40
_NAME_IN_C = re.compile(r"(?:built-in )?method '?(?:\w+\.)*(?P<name>\w+)'?")


def calling_line(code: Code, callers: Callers) -> CallSite | None:
    """Where the user's code calls this function, through the callers it ran longest for; None where none does."""
    called, seen = code, {code}
    for _ in range(_DEEPEST):
        above = {it: seconds for it, seconds in callers.get(called, {}).items() if it not in seen}
        if not above:
            return None
        caller = max(above, key=lambda it: above[it])
        if isinstance(caller, CodeType) and is_users(caller.co_filename):
            return CallSite(
                role="loader",
                file=caller.co_filename,
                line=_line_of_call(caller, _name_of(called)) or caller.co_firstlineno,
                function=caller.co_name,
            )
        seen.add(caller)
        called = caller
    return None


def _name_of(code: Code) -> str:
    if not isinstance(code, str):
        return code.co_name
    found = _NAME_IN_C.search(code)
    return found["name"] if found else ""


def _line_of_call(code: CodeType, name: str) -> int:
    """The first line that loads this name; 0 where none does, as where an object is called or made."""
    return next(
        (
            it.positions.lineno
            for it in instructions(code)
            if it.opname.startswith("LOAD") and it.argval == name and it.positions and it.positions.lineno
        ),
        0,
    )
