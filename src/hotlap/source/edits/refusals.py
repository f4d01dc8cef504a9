"""Why an edit was not made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

RefusalKind: TypeAlias = Literal[
    "not-parsable",  # the text is no Python that can be read and written back unchanged
    "not-found",  # nothing of that kind stands there
    "hidden-arguments",  # *args or **kwargs: what they hold is not to be seen
    "positional",  # the argument is passed by position, and others would move
    "name-taken",  # a name that is needed means something else there
    "unknown-name",  # the code uses a name that does not exist there
    "conflict",  # another edit changes the same place
    "shape",  # the code around it has a form that is left alone
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
    """The new text, and what was left out of it."""

    text: str
    refused: tuple[Refused, ...] = ()
