"""From the format that a study was written in to the present one.

A format changes only where a field changes its meaning, its type or its name; new fields carry defaults and need no
step. Each step from one format to the next is one function. It is given what part of the study a JSON object is, and
the object, and returns the object as the next format has it::

    def from_1_to_2(part: Part, document: Document) -> Document:
        ...

    STEPS: Mapping[int, Step] = {1: from_1_to_2}

A step looks at nothing but its own two formats, and is never changed after a release: a study of the first format goes
through all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

Document: TypeAlias = dict[str, Any]

Part: TypeAlias = Literal["summary", "header", "answer"]
"""``study.json``, the journal's first line, or one of its others."""

Step: TypeAlias = Callable[[Part, Document], Document]

STEPS: Mapping[int, Step] = {}
"""Each step by the format that it starts from. There is one format so far."""


def migrated(part: Part, document: Document, written_in: int, steps: Mapping[int, Step] = STEPS) -> Document:
    """The document as the format after the last step has it.

    Raises :class:`KeyError`, :class:`TypeError` or :class:`ValueError` for a document that is not what its format says.
    """
    for start in sorted(steps):
        if start >= written_in:
            document = steps[start](part, document)
    return document
