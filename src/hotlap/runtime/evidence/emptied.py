"""Whether a growing variable is emptied again: once per epoch, or when its function returns.

This uses the bytecode of the running functions, so code behind a condition that is never true counts too.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from types import CodeType
from typing import NamedTuple

from hotlap.runtime.evidence.instructions import instructions

_FRESH = frozenset({"list", "dict", "set", "deque", "defaultdict", "OrderedDict"})
_BUILDERS = frozenset({"BUILD_LIST", "BUILD_MAP", "BUILD_SET"})
_BETWEEN = ("PUSH_NULL", "PRECALL", "CALL", "CACHE", "LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "COPY")
_LOOKED_BACK = 6


class Running(NamedTuple):
    """A running function of the user, and its position."""

    code: CodeType
    offset: int


def emptied_in_a_loop(running: Sequence[Running], path: Sequence[str]) -> bool:
    """Whether a loop around the current position assigns a new, empty container to ``path``, or clears it."""
    return any(
        first <= offset <= last
        for code, position in running
        for first, last in _loops_around(code, position)
        for offset in _emptying(code, path)
    )


def emptied_by(codes: Iterable[CodeType], path: Sequence[str]) -> bool:
    """Whether one of these functions does so anywhere, as a metric's ``reset`` does."""
    return any(True for code in codes for _ in _emptying(code, path))


def gone_when_it_returns(running: Sequence[Running], function: str, name: str) -> bool:
    """Whether ``name`` belongs to a function that is called in a loop, and neither came from its caller nor goes back
    to it. ``running`` has the innermost first."""
    for index, (code, _) in enumerate(running):
        if code.co_qualname != function or name not in code.co_varnames[code.co_argcount :]:
            continue
        called_in_a_loop = any(_loops_around(outer, at) for outer, at in running[index + 1 :])
        return called_in_a_loop and not _returned(code, name)
    return False


def _loops_around(code: CodeType, offset: int) -> list[tuple[int, int]]:
    """First and last offset of each loop around the position."""
    jumps = (it for it in instructions(code) if "JUMP_BACKWARD" in it.opname and isinstance(it.argval, int))
    return [(it.argval, it.offset) for it in jumps if it.argval <= offset <= it.offset]


def _emptying(code: CodeType, path: Sequence[str]) -> Iterator[int]:
    """The offsets where ``path`` gets a new, empty container, or is cleared."""
    steps = list(instructions(code))
    for index, it in enumerate(steps):
        stored = it.opname.startswith("STORE") and it.argval == path[-1] and _is_fresh(steps[:index], path)
        loaded = [known.argval for known in steps[max(0, index - len(path)) : index]]
        if stored or (it.argval == "clear" and loaded == [*path]):
            yield it.offset


def _is_fresh(before: Sequence[dis.Instruction], path: Sequence[str]) -> bool:
    """Whether the stored value was created empty just before; ``self.values = []`` loads the object in between."""
    for it in reversed(before[-_LOOKED_BACK:]):
        if it.opname in _BUILDERS:
            return not it.arg
        if it.argval in _FRESH:
            return True
        if not it.opname.startswith(_BETWEEN) or (it.opname.startswith("LOAD") and it.argval not in path):
            return False
    return False


def _returned(code: CodeType, name: str) -> bool:
    steps = list(instructions(code))
    return any(
        it.opname.startswith("LOAD_FAST") and it.argval == name and after.opname == "RETURN_VALUE"
        for it, after in pairwise(steps)
    )
