"""The kinds of edits, as records.

This module imports nothing slow, so that edits are cheap to describe; :func:`hotlap.source.edits.apply.apply_changes`
applies them.

A place is a :class:`Span` with the positions of :mod:`ast`: lines count from 1, columns are bytes of UTF-8 from 0. All
spans refer to the text before any edit, however many edits are applied together.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeAlias

HOLE = "_"
"""The placeholder of the old expression in the code of a :class:`WrapExpression`."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A range of source code, as ``lineno``, ``col_offset``, ``end_lineno`` and ``end_col_offset``."""

    line: int
    column: int
    end_line: int
    end_column: int

    @classmethod
    def of(cls, node: ast.expr | ast.stmt | ast.keyword) -> Span:
        """Return the span of a node that :func:`ast.parse` made from the same text."""
        end_line = node.lineno if node.end_lineno is None else node.end_lineno
        end_column = node.col_offset if node.end_col_offset is None else node.end_col_offset
        return cls(node.lineno, node.col_offset, end_line, end_column)


@dataclass(frozen=True, slots=True)
class Code:
    """An expression, or statements, to put into a file.

    ``needs`` are the full dotted names that the text uses and the file may not have yet:
    ``Code("torch.autocast('cuda')", needs=("torch.autocast",))``. Each is written by an import that the file has, or
    one that is added. Every other name in the text must be bound where the code is inserted, or listed in ``knows``
    because another edit of the same change binds it.
    """

    text: str
    needs: tuple[str, ...] = ()
    knows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetKeyword:
    """Set a keyword argument of a call.

    ``position`` is the parameter's index in the signature, if it may also be passed by position. With
    ``only_if_present`` a call that does not pass it is left unchanged.
    """

    call: Span
    name: str
    value: Code
    position: int | None = None
    only_if_present: bool = False


@dataclass(frozen=True, slots=True)
class RemoveKeyword:
    """Remove an argument from a call; without effect if it is not passed. ``position`` as in ``SetKeyword``."""

    call: Span
    name: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class SetEntry:
    """Set an entry of a dictionary display ``{...}``."""

    dictionary: Span
    key: str
    value: Code


@dataclass(frozen=True, slots=True)
class ReplaceExpression:
    """Replace an expression. Nothing else may be edited within it."""

    at: Span
    code: Code


@dataclass(frozen=True, slots=True)
class WrapExpression:
    """Wrap an expression in another one, whose code contains the name ``_`` once in its place.

    Edits within the old expression still apply. Of several wraps of one expression the first is the innermost.
    """

    at: Span
    code: Code


@dataclass(frozen=True, slots=True)
class WrapStatements:
    """Wrap consecutive statements of one block in a ``with`` over the context managers ``context``.

    Statements inserted before the first or after the last of them stay outside.
    """

    first: Span
    last: Span
    context: Code


@dataclass(frozen=True, slots=True)
class Unwrap:
    """Replace a ``with``, or an ``if`` without ``else``, by its body."""

    statement: Span


@dataclass(frozen=True, slots=True)
class InsertBefore:
    """Insert statements before a statement, below its blank lines and above its comments."""

    statement: Span
    code: Code


@dataclass(frozen=True, slots=True)
class InsertAfter:
    """Insert statements after a statement."""

    statement: Span
    code: Code


@dataclass(frozen=True, slots=True)
class InsertAtTop:
    """Insert statements after the imports at the top of the file, unless its top level already has them."""

    code: Code


@dataclass(frozen=True, slots=True)
class RemoveStatement:
    """Remove a statement with the comment on its line; comments above it stay. An empty block gets a ``pass``."""

    statement: Span


Edit: TypeAlias = (
    SetKeyword
    | RemoveKeyword
    | SetEntry
    | ReplaceExpression
    | WrapExpression
    | WrapStatements
    | Unwrap
    | InsertBefore
    | InsertAfter
    | InsertAtTop
    | RemoveStatement
)
Change: TypeAlias = tuple[Edit, ...]
"""Edits that belong together: all of them are applied, or none."""
