"""Add a gradient scaler for float16: its creation, backward, unscaling before clipping, and the step."""

from __future__ import annotations

import ast

from hotlap.records import ScaledLoss
from hotlap.source.edits.kinds import Code as NewCode
from hotlap.source.edits.kinds import (
    InsertAfter,
    InsertAtTop,
    InsertBefore,
    ReplaceExpression,
    Span,
    WrapExpression,
)
from hotlap.source.patch.code import Code, Edits, NotPossible, Sources, names_read
from hotlap.source.patch.regions import backward_of

NAME = "scaler"
_MAKER = "torch.amp.GradScaler"


def edits_for(sources: Sources, change: ScaledLoss) -> Edits:
    """Make all edits for scaling. Raises :class:`NotPossible`."""
    if sources.facts.grad_scaler:
        raise NotPossible("The script already scales its loss.")
    backwards = [backward_of(sources, it) for it in sources.sites("backward")]
    steps = [sources.of_site(it, "The optimizer's step") for it in sources.sites("step")]
    if not backwards or len(steps) != 1:
        raise NotPossible("The patch can add a scaler only if one line steps one optimizer.")
    code, step = steps[0]
    if any(it.code is not code for it in backwards):
        raise NotPossible("Backward and step are called in different files.")
    optimizer = _optimizer_of(code, step)
    _check_nothing_reads_gradients(code, step)
    if any(isinstance(it, ast.Name) and it.id == NAME for it in code.of(ast.Name)):
        raise NotPossible(f"The name {NAME} is in use.")
    statement = code.statement(step)
    edits: Edits = [
        (code.path, InsertAtTop(NewCode(f'{NAME} = {_MAKER}("{change.device}")', (_MAKER,)))),
        *((code.path, WrapExpression(Span.of(it.loss), _with_scaler("scale(_)"))) for it in backwards),
        (code.path, ReplaceExpression(Span.of(step), _with_scaler(f"step({optimizer})"))),
        (code.path, InsertAfter(Span.of(statement), _with_scaler("update()"))),
    ]
    return edits + _unscaled_before_clipping(sources, code, step, optimizer)


def _with_scaler(call: str) -> NewCode:
    """A call of the scaler, whose arguments are bound there: they are already in the code."""
    there = names_read(ast.parse(call, mode="eval"))
    return NewCode(f"{NAME}.{call}", knows=(NAME, *sorted(there)))


def _optimizer_of(code: Code, step: ast.Call) -> str:
    """The optimizer in ``optimizer.step()``. Raises :class:`NotPossible` for any other form."""
    statement = code.statement(step)
    alone = isinstance(statement, ast.Expr) and statement.value is step and not step.args and not step.keywords
    if not alone or not isinstance(step.func, ast.Attribute) or step.func.attr != "step":
        raise NotPossible(f"The step in line {step.lineno} is not a plain `optimizer.step()`.")
    return code.text(step.func.value)


def _check_nothing_reads_gradients(code: Code, step: ast.Call) -> None:
    readers = [it for it in code.of(ast.Attribute) if it.attr == "grad"]
    if readers:
        raise NotPossible(f"Line {readers[0].lineno} uses gradients, which would be scaled there.")


def _unscaled_before_clipping(sources: Sources, code: Code, step: ast.Call, optimizer: str) -> Edits:
    clips = [sources.of_site(it, "Clipping") for it in sources.sites("clip")]
    if sources.facts.clips_gradients and not clips:
        raise NotPossible("Gradients are clipped where it was not seen.")
    if any(it is not code or code.function(call) is not code.function(step) for it, call in clips):
        raise NotPossible("Gradients are clipped in another function than the step's.")
    unscale = _with_scaler(f"unscale_({optimizer})")
    return [(code.path, InsertBefore(Span.of(code.statement(call)), unscale)) for _, call in clips]
