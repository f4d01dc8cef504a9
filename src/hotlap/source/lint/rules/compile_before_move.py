"""A model is moved or cast after it was compiled.

## What it does
Finds `.to(...)`, `.cuda()` and casts such as `.half()` of a model that `torch.compile` or `model.compile()` had before,
in the same function. It is silent after a training loop, as where a model goes back to the host to be saved.

## Why it is slow
What is compiled is made for the devices and types that it first sees. Compiling happens in the first call, so whatever
runs before the move, a warm-up or a check of shapes, is compiled for the wrong place and then a second time. Where
nothing runs in between the order costs nothing yet; it is one line away from costing minutes.

## Example
    model = torch.compile(Net())
    model = model.to("cuda")

## Use instead
    model = Net().to("cuda")
    model = torch.compile(model)

## Fix safety
Unsafe: the order is changed where nothing uses the model in between. The same is computed, but a comment may end up
next to another line.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.compile.html
- https://docs.pytorch.org/docs/stable/compile/programming_model.recompilation.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hotlap.source.edits.kinds import Change, Code, InsertAfter, RemoveStatement, ReplaceExpression, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.check import position
from hotlap.source.lint.context import Context

code = "HL402"
title = "A model is moved or cast after it was compiled"
fix_safety: FixSafety = "unsafe"

_MOVES = ("to", "cuda", "xpu", "half", "bfloat16", "float", "double")


@dataclass(frozen=True)
class _Compiled:
    """A compiling; ``names`` are the variables that stand for the model from then on."""

    call: ast.Call
    names: tuple[ast.Name, ...]


def check(context: Context) -> Iterator[Violation]:
    """Each first move of a compiled model."""
    moves = sorted(context.methods(*_MOVES), key=lambda it: position(it[0]))
    for compiled in _compilings(context):
        for move, function in moves:
            if function.value is compiled.call:
                yield Violation(move, _message(""), edits=_inside_out(context, compiled.call, move))
                break
            if _is_of(context, compiled, move, function.value):
                yield _out_of_order(context, compiled, move)
                break


def _out_of_order(context: Context, compiled: _Compiled, move: ast.Call) -> Violation:
    related = Related(compiled.call, "compiled here")
    ran = _ran_between(context, compiled, move)
    if ran is not None:
        return Violation(move, _message(context.tree.source(ran, 30)), (related, Related(ran, "run here")))
    return Violation(move, _message(""), (related,), _in_order(context, compiled.call, move))


def _message(ran: str) -> str:
    if ran:
        return f"The compiled model has run already (`{ran}`) when it is moved or cast: it is compiled a second time."
    return "The model is moved or cast after compiling; whatever runs before is compiled twice. Move it first."


def _compilings(context: Context) -> Iterator[_Compiled]:
    for call in context.calls("torch.compile"):
        above = context.tree.parent(call)
        targets = above.targets if isinstance(above, ast.Assign) and above.value is call else []
        given = [it for it in call.args[:1] if isinstance(it, ast.Name)]
        yield _Compiled(call, (*(it for it in targets if isinstance(it, ast.Name)), *given))
    for call, function in context.methods("compile"):
        if isinstance(function.value, ast.Name) and context.kind(function.value) == "module":
            yield _Compiled(call, (function.value,))


def _is_of(context: Context, compiled: _Compiled, move: ast.Call, moved: ast.expr) -> bool:
    """Whether a move comes after the compiling, in the same function, and is of the same model."""
    if not isinstance(moved, ast.Name) or position(move) < position(compiled.call):
        return False
    if context.tree.scope(move) is not context.tree.scope(compiled.call) or _is_to_host(context, move):
        return False
    if not any(it.id == moved.id and _is_bound_alike(context, it, moved, compiled) for it in compiled.names):
        return False
    between = (it.node for it in context.training_loops)
    return not any(position(compiled.call) < position(it) < position(move) for it in between)


def _is_bound_alike(context: Context, name: ast.Name, moved: ast.Name, compiled: _Compiled) -> bool:
    bindings = context.bindings(moved)
    if isinstance(name.ctx, ast.Store):
        return [it.node for it in bindings] == [name]
    # The argument of torch.compile: the same object as long as the name is not bound again.
    return bool(bindings) and set(bindings) == set(context.bindings(name))


def _is_to_host(context: Context, move: ast.Call) -> bool:
    assert isinstance(move.func, ast.Attribute)
    return move.func.attr == "to" and bool(move.args) and context.constant(move.args[0]) == "cpu"


def _ran_between(context: Context, compiled: _Compiled, move: ast.Call) -> ast.Call | None:
    names = {it.id for it in compiled.names}
    for call in context.tree.of(ast.Call):
        runs = isinstance(call.func, ast.Name) and call.func.id in names
        if runs and position(compiled.call) < position(call) < position(move):
            return call
    return None


# -- fixes ----------------------------------------------------------------------------------------


def _inside_out(context: Context, compiled: ast.Call, move: ast.Call) -> Change:
    """``torch.compile(m).to(d)`` becomes ``torch.compile(m.to(d))``, where both stand on one line."""
    model = compiled.args[0] if compiled.args else None
    if not isinstance(model, (ast.Name, ast.Call)) or move.lineno != move.end_lineno:
        return ()
    line = context.tree.text.splitlines()[move.lineno - 1].encode()
    start, before_moving, end = compiled.col_offset, compiled.end_col_offset, move.end_col_offset
    within = model.end_col_offset
    moved = line[start:within] + line[before_moving:end] + line[within:before_moving]
    return (ReplaceExpression(Span.of(move), Code(moved.decode())),)


def _in_order(context: Context, compiled: ast.Call, move: ast.Call) -> Change:
    """The compiling goes behind the move, where both are statements of one block and nothing between uses the model."""
    first, second = context.tree.statement(compiled), context.tree.statement(move)
    if context.tree.parent(first) is not context.tree.parent(second) or not _is_plain(move, second):
        return ()
    match first:
        case ast.Assign(targets=[ast.Name(id=target)], value=ast.Call(args=[ast.Name(id=given)])) if target == given:
            pass
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=target), attr="compile"))):
            pass
        case _:
            return ()
    text = ast.get_source_segment(context.tree.text, first)
    if text is None or context.tree.block(first) != context.tree.block(second):
        return ()
    used = (it for it in context.tree.of(ast.Name) if it.id == target)
    if any(position(first) < position(it) < position(second) and it not in ast.walk(first) for it in used):
        return ()
    return (RemoveStatement(Span.of(first)), InsertAfter(Span.of(second), Code(text)))


def _is_plain(move: ast.Call, statement: ast.stmt) -> bool:
    """Whether the statement only moves: ``model.to(d)`` or ``model = model.to(d)``."""
    assert isinstance(move.func, ast.Attribute)
    match statement, move.func.value:
        case ast.Expr(value=value), _:
            return value is move
        case ast.Assign(targets=[ast.Name(id=target)], value=value), ast.Name(id=moved):
            return value is move and target == moved
    return False


bad = {
    "in one line": """
        import torch
        from models import Net

        device = torch.device("cuda")
        model = torch.compile(Net(), mode="max-autotune").to(device)
        """,
    "line by line": """
        import torch

        model = Net()
        model = torch.compile(model)
        optimizer = make_optimizer()
        model.to("cuda")
        """,
    "in place, in a function": """
        import torch
        from torch import nn

        def build(device):
            model = nn.Linear(10, 2)
            model.compile(dynamic=False)
            model = model.to(device)
            return model
        """,
    "the model that was handed over, after a warm-up": """
        import torch

        def main(model, batch):
            fast = torch.compile(model)
            fast(batch)
            model.cuda()
            train(fast)
        """,
}
fixed = {
    "in one line": """
        import torch
        from models import Net

        device = torch.device("cuda")
        model = torch.compile(Net().to(device), mode="max-autotune")
        """,
    "line by line": """
        import torch

        model = Net()
        optimizer = make_optimizer()
        model.to("cuda")
        model = torch.compile(model)
        """,
    "in place, in a function": """
        import torch
        from torch import nn

        def build(device):
            model = nn.Linear(10, 2)
            model = model.to(device)
            model.compile(dynamic=False)
            return model
        """,
}
good = {
    "moved first": """
        import torch

        model = torch.compile(Net().to(device))
        """,
    "line by line": """
        import torch

        model = Net().cuda().half()
        model = torch.compile(model)
        """,
    "back to the host, to be saved": """
        import torch

        model = torch.compile(model)
        for batch in loader:
            model(batch.cuda()).mean().backward()
            optimizer.step()
        model.to("cpu")
        torch.save(model.state_dict(), path)
        """,
    "another model is moved": """
        import torch

        student = torch.compile(student)
        teacher.to(device)
        """,
    "the name stands for another model by then": """
        import torch

        model = torch.compile(model)
        evaluate(model)
        model = load_reference()
        model.to(device)
        """,
    "batches are moved": """
        import torch

        model = torch.compile(model)
        for batch in loader:
            batch = batch.to(device)
            model(batch).mean().backward()
            optimizer.step()
        """,
}
