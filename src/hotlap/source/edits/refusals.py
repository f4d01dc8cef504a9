"""Why an edit was not made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

RefusalKind: TypeAlias = Literal[
    "not-parsable",  # the text cannot be parsed and written back unchanged
    "not-found",  # there is no node of that kind
    "hidden-arguments",  # *args or **kwargs with unknown content
    "positional",  # the argument is passed by position, and others would shift
    "name-taken",  # a needed name is bound to something else there
    "unknown-name",  # the code uses a name that does not exist there
    "conflict",  # another edit changes the same place
    "shape",  # the surrounding code has an unsupported form
]


class CannotEdit(Exception):
    """An edit that cannot be made safely. ``reason`` is a sentence for people; nothing was changed."""

    def __init__(self, kind: RefusalKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Refused:
    """The change at ``index`` was left out as a whole, and why."""

    index: int
    kind: RefusalKind
    reason: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The new text, and the changes left out."""

    text: str
    refused: tuple[Refused, ...] = ()
