"""The C function that a line calls, by its name in the line, since no Python frame shows it."""

from __future__ import annotations

import builtins
import dis
from collections.abc import Mapping
from types import CodeType, ModuleType
from typing import Any

from hotlap.runtime.evidence.instructions import instructions

OPERATOR = "operator"
"""The line computes without a call: ``a * b``, ``x[i]``. Another thread gets the interpreter between two lines of
Python, or when a function of C releases it, so a thread that is sampled in the middle of this runs an operator of torch
or NumPy."""

_CALLS = ("PRECALL", "CALL")
_OPERATORS = ("BINARY", "UNARY", "COMPARE", "STORE_SUBSCR", "CONTAINS")
_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")
_MOST_INSTRUCTIONS = 50_000
_OF_STRINGS = frozenset({"index", "split", "values"})
"""Tensors have these methods as well, but spend no time in them; strings, lists and dictionaries do."""


class NativeCalls:
    """Names by the instruction at which a frame was met, each looked up once."""

    def __init__(self, torch: ModuleType) -> None:
        self._tensor: type = torch.Tensor
        self._names: dict[tuple[CodeType, int], str] = {}

    def name(self, code: CodeType, offset: int, variables: Mapping[str, Any]) -> str:
        """What a frame of ``code``, met at this offset, was in; ``variables`` are the frame's globals.

        ``torch.sort`` for a module's function, ``torch.Tensor.relu`` for what a tensor knows as a method and spends
        time in, ``.write`` for any other method, ``len`` for a plain name, :data:`OPERATOR` (for a local name as well),
        and nothing for plain Python.
        """
        key = (code, offset)
        found = self._names.get(key)
        if found is None:
            found = self._names[key] = self._look_up(code, offset, variables)
        return found

    def _look_up(self, code: CodeType, offset: int, variables: Mapping[str, Any]) -> str:
        if len(code.co_code) > 2 * _MOST_INSTRUCTIONS:
            return ""
        before: list[dis.Instruction] = []
        for it in instructions(code):
            if it.offset > offset:
                break
            before.append(it)
        at = before[-1] if before else None
        if at is None or at.opname.startswith(_OPERATORS):
            return OPERATOR if at is not None else ""
        if not at.opname.startswith(_CALLS):
            return ""
        return self._named(_path_of(before), variables)

    def _named(self, path: list[str], variables: Mapping[str, Any]) -> str:
        if not path:
            return ""
        module = variables.get(path[0])
        if isinstance(module, ModuleType):
            return ".".join([module.__name__, *path[1:]])
        if len(path) == 1:
            known = variables.get(path[0], getattr(builtins, path[0], None))
            return OPERATOR if known is None or _is_torchs(known) else path[0]
        is_tensors = hasattr(self._tensor, path[-1]) and path[-1] not in _OF_STRINGS
        return f"torch.Tensor.{path[-1]}" if is_tensors else f".{path[-1]}"


def _is_torchs(function: Any) -> bool:
    """Whether a function was imported by its bare name from torch, whose functions of C name no module."""
    module = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
    return str(module).partition(".")[0] == "torch"


def _path_of(before: list[dis.Instruction]) -> list[str]:
    """The dotted name that the last of these instructions calls; a leading ``""`` where it begins with an expression.
    The loads of a callee begin where the call does, those of its arguments later."""
    call = before[-1].positions
    if call is None or call.lineno is None or call.col_offset is None:
        return []
    own = _CALLS[0] if before[-1].opname == _CALLS[1] else ""  # until Python 3.11 a call has two instructions
    path: list[str] = []
    for it in reversed(before[:-1]):
        where = it.positions
        if where is None or (where.lineno, where.col_offset) != (call.lineno, call.col_offset):
            continue
        if not it.opname.startswith(_LOADS) or type(it.argval) is not str:
            if it.opname == own:
                own = ""
            elif path or it.opname.startswith(_CALLS):
                return ["", *path]
            continue
        path.insert(0, it.argval)
        if it.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            return path
    return ["", *path] if path else []
