"""Instructions of Python 3.13 that load or store two variables count as two."""

from __future__ import annotations

import dis

import pytest

from hotlap.runtime.evidence import growth_lines
from hotlap.runtime.evidence.instructions import instructions


def grows(total: int, step: int) -> int:
    kept = step
    total = total + kept
    return total


def variables() -> list[tuple[str, str]]:
    found = [(it.opname.partition("_")[0], it.argval) for it in instructions(grows.__code__) if "FAST" in it.opname]
    return [(kind, str(name)) for kind, name in found]


EXPECTED = [
    ("LOAD", "step"),
    ("STORE", "kept"),
    ("LOAD", "total"),
    ("LOAD", "kept"),
    ("STORE", "total"),
    ("LOAD", "total"),
]


def test_each_loads_or_stores_one_variable() -> None:
    assert variables() == EXPECTED


def test_two_at_once_are_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.13 compiles it, whatever this Python does."""
    plain = list(instructions(grows.__code__))
    loads = next(index for index, it in enumerate(plain) if it.argval == "total")
    both = plain[loads]._replace(opname="LOAD_FAST_LOAD_FAST", argval=("total", "kept"))
    stored = next(index for index, it in enumerate(plain) if it.opname.startswith("STORE") and it.argval == "total")
    and_back = plain[stored]._replace(opname="STORE_FAST_LOAD_FAST", argval=("total", "total"))
    compiled = [*plain[:loads], both, *plain[loads + 2 : stored], and_back, *plain[stored + 2 :]]
    monkeypatch.setattr(dis, "get_instructions", lambda code: iter(compiled))
    assert variables() == EXPECTED
    site = growth_lines.growing_line([grows.__code__], ["total"])
    assert site is not None and site.line == grows.__code__.co_firstlineno + 2
