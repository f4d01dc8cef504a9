"""The edits that can be asked for, as records.

Nothing heavy is imported here, so whoever finds something to edit can say so at no cost;
:func:`hotlap.source.edits.apply.apply_changes` carries edits out.

A place is a :class:`Span` with the positions of :mod:`ast`: lines count from 1, columns are bytes of UTF-8 from 0. All
spans speak of the text as it was before any edit, however many edits are applied together.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeAlias

HOLE = "_"
"""The name that stands for the old expression in the code of a :class:`WrapExpression`."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """From where to where something stands, as ``lineno``, ``col_offset``, ``end_lineno`` and ``end_col_offset``."""

    line: int
    column: int
    end_line: int
    end_column: int

    @classmethod
    def of(cls, node: ast.expr | ast.stmt | ast.keyword) -> Span:
        """Where a node of a tree that :func:`ast.parse` made of the same text stands."""
        end_line = node.lineno if node.end_lineno is None else node.end_lineno
        end_column = node.col_offset if node.end_col_offset is None else node.end_col_offset
        return cls(node.lineno, node.col_offset, end_line, end_column)


@dataclass(frozen=True, slots=True)
class Code:
    """An expression, or statements, to put into a file.

    ``needs`` are the full dotted names that the text uses and the file may not have yet:
    ``Code("torch.autocast('cuda')", needs=("torch.autocast",))``. Each is written as that file can reach it, by an
    import it has or one that is added. Every other name in the text must be known at the place it is put, or be one
    that the caller ``knows`` of, since another edit of the same change binds it.
    """

    text: str
    needs: tuple[str, ...] = ()
    knows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetKeyword:
    """Give a call this keyword argument, in place of the value it has.

    ``position`` is the parameter's index in the signature, where it may be passed by position as well. With
    ``only_if_present`` a call that does not pass it is left unchanged.
    """

    call: Span
    name: str
    value: Code
    position: int | None = None
    only_if_present: bool = False


@dataclass(frozen=True, slots=True)
class RemoveKeyword:
    """Take this argument from a call; nothing happens where it is not passed. ``position`` as in ``SetKeyword``."""

    call: Span
    name: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class SetEntry:
    """Give a dictionary display ``{...}`` this entry, in place of the value that it has under the key."""

    dictionary: Span
    key: str
    value: Code


@dataclass(frozen=True, slots=True)
class ReplaceExpression:
    """Put another expression in its place. Nothing else may be edited within it."""

    at: Span
    code: Code


@dataclass(frozen=True, slots=True)
class WrapExpression:
    """Put an expression in its place that holds it: the name ``_`` in the code stands for it, once.

    Edits within the old expression go on to hold. Of several wraps of one expression the first is the innermost.
    """

    at: Span
    code: Code


@dataclass(frozen=True, slots=True)
class WrapStatements:
    """Put consecutive statements of one block into a ``with``, whose context managers ``context`` names.

    What is inserted before the first or after the last of them stays outside.
    """

    first: Span
    last: Span
    context: Code


@dataclass(frozen=True, slots=True)
class Unwrap:
    """Put the body of a ``with`` or of an ``if`` without ``else`` in place of the whole statement."""

    statement: Span


@dataclass(frozen=True, slots=True)
class InsertBefore:
    """Put statements before a statement, below its blank lines and above its comments."""

    statement: Span
    code: Code


@dataclass(frozen=True, slots=True)
class InsertAfter:
    """Put statements after a statement."""

    statement: Span
    code: Code


@dataclass(frozen=True, slots=True)
class InsertAtTop:
    """Put statements after the imports at the top of the file; nothing happens where the file has them at its top level
    already."""

    code: Code


@dataclass(frozen=True, slots=True)
class RemoveStatement:
    """Take a statement out, with the comment on its line; comments above it stay. A block that becomes empty gets a
    ``pass``."""

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
"""Edits that make sense together only: all of them are carried out, or none is."""
