"""Finding the line that makes a variable grow, in the bytecode of the functions that were running."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType

from hotlap.records import CallSite

_ADDING = frozenset({"append", "appendleft", "extend", "add", "update", "setdefault", "insert", "put"})
_OF_A_VARIABLE = re.compile(r"(LOAD|STORE)_FAST")


def growing_line(codes: Iterable[CodeType], path: Sequence[str]) -> CallSite | None:
    """Where ``path`` (``("self", "losses")`` for ``self.losses``) is appended to, put an item into, or computed from
    itself; None where no such line is among ``codes``."""
    for code in codes:
        line = _line_in(code, tuple(path))
        if line:
            return CallSite(role="step", file=code.co_filename, line=line, function=code.co_name, what=".".join(path))
    return None


def _line_in(code: CodeType, path: tuple[str, ...]) -> int:
    steps = list(_steps(code))
    for index in range(len(steps)):
        behind = index + len(path)
        if not _loads(steps[index:behind], path):
            continue
        line = steps[index][2]
        following = steps[behind : behind + 3]
        if any(argument in _ADDING for _, argument, _ in following):
            return line
        # An item is stored by naming the container, then its key.
        if any(operation == "STORE_SUBSCR" and where == line for operation, _, where in following[1:]):
            return line
        if any(it[0].startswith("STORE") and it[1] == path[-1] and it[2] == line for it in steps[behind:]):
            return line
    return 0


def _steps(code: CodeType) -> Iterator[tuple[str, object, int]]:
    """The name, the argument and the line of each instruction. From Python 3.13 on one may load or store two variables:
    that counts as two."""
    for it in dis.get_instructions(code):
        if it.positions is None:
            continue
        both = _OF_A_VARIABLE.findall(it.opname)
        line = it.positions.lineno or 0
        if len(both) == 2 and isinstance(it.argval, tuple):
            yield from ((operation, name, line) for operation, name in zip(both, it.argval, strict=True))
        else:
            yield it.opname, it.argval, line


def _loads(steps: Sequence[tuple[str, object, int]], path: tuple[str, ...]) -> bool:
    return len(steps) == len(path) and all(
        operation.startswith("LOAD") and argument == name
        for (operation, argument, _), name in zip(steps, path, strict=True)
    )
