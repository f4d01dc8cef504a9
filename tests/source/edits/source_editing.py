"""How the tests of edits name places: by the piece of source there."""

from __future__ import annotations

import ast

from hotlap.source.edits.apply import apply_changes
from hotlap.source.edits.kinds import Change, Edit, Span
from hotlap.source.edits.refusals import Applied


def expression(source: str, piece: str, number: int = 0) -> Span:
    """The ``number``-th expression that is written exactly so (parentheses around it left out)."""
    found = [it for it in ast.walk(ast.parse(source)) if isinstance(it, ast.expr) and _text(source, it) == piece]
    return Span.of(sorted(found, key=lambda it: (it.lineno, it.col_offset))[number])


def statement(source: str, beginning: str, number: int = 0) -> Span:
    """The ``number``-th statement whose source begins so."""
    nodes = [it for it in ast.walk(ast.parse(source)) if isinstance(it, ast.stmt)]
    found = [it for it in nodes if _text(source, it).startswith(beginning)]
    return Span.of(sorted(found, key=lambda it: (it.lineno, it.col_offset))[number])


def apply(source: str, *edits: Edit) -> Applied:
    """Each edit as a change of its own."""
    return apply_changes(source, [(it,) for it in edits])


def edited(source: str, *changes: Change | Edit) -> str:
    """The new source; fails where anything was refused."""
    result = apply_changes(source, [it if isinstance(it, tuple) else (it,) for it in changes])
    assert not result.refused
    return result.text


def refusal(source: str, edit: Edit) -> str:
    """The kind of refusal; fails where there is none, or where the text changed all the same."""
    result = apply(source, edit)
    assert result.text == source
    (refused,) = result.refused
    assert refused.reason.endswith((".", "!")) or ":" in refused.reason
    return refused.kind


def _text(source: str, node: ast.AST) -> str:
    return ast.get_source_segment(source, node) or ""
