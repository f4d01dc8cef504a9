"""Finding the line that makes a variable grow, in the bytecode of the functions that were running."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType

from hotlap.records import CallSite
from hotlap.runtime.evidence.instructions import instructions

_ADDING = frozenset({"append", "appendleft", "extend", "add", "update", "setdefault", "insert", "put"})


def growing_line(codes: Iterable[CodeType], path: Sequence[str]) -> CallSite | None:
    """Where ``path`` (``("self", "losses")`` for ``self.losses``) is appended to, put an item into, or computed from
    itself; None where no such line is among ``codes``."""
    for code in codes:
        line = _line_in(code, tuple(path))
        if line:
            return CallSite(role="step", file=code.co_filename, line=line, function=code.co_name, what=".".join(path))
    return None


def _line_in(code: CodeType, path: tuple[str, ...]) -> int:
    steps = [(it.opname, it.argval, it.positions.lineno or 0) for it in instructions(code) if it.positions is not None]
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


def _loads(steps: Sequence[tuple[str, object, int]], path: tuple[str, ...]) -> bool:
    return len(steps) == len(path) and all(
        operation.startswith("LOAD") and argument == name
        for (operation, argument, _), name in zip(steps, path, strict=True)
    )
