"""Put each call of a model that is not trained into a ``with``, or another context in the place of one around it."""

from __future__ import annotations

import ast

from hotlap.records import CallRegion
from hotlap.source.edits.kinds import Code as NewCode
from hotlap.source.edits.kinds import ReplaceExpression, Span, WrapStatements
from hotlap.source.patch.code import Code, Edits, NotPossible, Sources, last_part


def edits_for(sources: Sources, change: CallRegion) -> Edits:
    """Wrap the statement of each call. Raises :class:`NotPossible`."""
    found = [sources.of_site(it, f"The call of {it.what}") for it in sources.sites("model")]
    if not found:
        raise NotPossible("No line was seen that calls the model.")
    edits = [(code.path, edit) for code, call in dict.fromkeys(found) for edit in _edits(code, call, change)]
    return list(dict.fromkeys(edits))  # calls may share a statement, or a context


def _edits(code: Code, call: ast.Call, change: CallRegion) -> list[ReplaceExpression | WrapStatements]:
    new = NewCode(change.context, change.needs)
    for context in _contexts(code, call):
        name = last_part(context.func if isinstance(context, ast.Call) else context)
        if name == change.already:
            return []
        if change.replaces and name == change.replaces and not getattr(context, "args", None):
            return [ReplaceExpression(Span.of(context), new)]
    statement = code.statement(call)
    if any(isinstance(it, (ast.Yield, ast.YieldFrom)) for it in ast.walk(statement)):
        raise NotPossible(f"The statement in line {statement.lineno} yields, and would leave the region open.")
    span = Span.of(statement)
    return [WrapStatements(span, span, new)]


def _contexts(code: Code, call: ast.Call) -> list[ast.expr]:
    """The contexts that the call is certainly in: of ``with`` around it, and decorators of its own function."""
    found: list[ast.expr] = []
    for it in code.above(call):
        if isinstance(it, (ast.With, ast.AsyncWith)):
            found += [item.context_expr for item in it.items]
        if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return found + it.decorator_list
    return found
