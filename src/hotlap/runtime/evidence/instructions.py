"""The instructions of a function, each of which loads or stores one variable."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator
from types import CodeType

_OF_A_VARIABLE = re.compile(r"(?:LOAD|STORE)_FAST")


def instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """As :func:`dis.get_instructions`, but one that loads or stores two variables comes as two. Python has such since
    3.13."""
    for it in dis.get_instructions(code):
        both = _OF_A_VARIABLE.findall(it.opname)
        if len(both) == 2 and isinstance(it.argval, tuple):
            yield from (it._replace(opname=name, argval=of) for name, of in zip(both, it.argval, strict=True))
        else:
            yield it
