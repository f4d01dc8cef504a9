"""Change the implementation of attention that the script requests from ``transformers``."""

from __future__ import annotations

import ast

from hotlap.records import AttentionArgument
from hotlap.source.edits.kinds import Code as NewCode
from hotlap.source.edits.kinds import ReplaceExpression, Span
from hotlap.source.patch.code import Edits, NotPossible, Sources

_NAMES = frozenset({"attn_implementation", "_attn_implementation"})


def edits_for(sources: Sources, change: AttentionArgument) -> Edits:
    """Replace each literal that requests the old one, in the files with call sites. Raises :class:`NotPossible`."""
    edits: Edits = []
    for path in sources.site_paths():
        try:
            code = sources.code(path)
        except NotPossible:
            continue
        values = [it.value for it in code.of(ast.keyword) if it.arg in _NAMES]
        for it in code.of(ast.Assign):
            if isinstance(it, ast.Assign) and any(
                isinstance(t, ast.Attribute) and t.attr in _NAMES for t in it.targets
            ):
                values.append(it.value)
        asked = [it for it in values if isinstance(it, ast.Constant) and it.value == change.instead_of]
        new = NewCode(f'"{change.implementation}"')
        edits += [(path, ReplaceExpression(Span.of(it), new)) for it in asked]
    if not edits:
        raise NotPossible(f'No call says attn_implementation="{change.instead_of}" in the files that train.')
    return edits
