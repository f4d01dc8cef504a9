"""The backward pass runs inside autocast.

## What it does
Finds `backward()` inside a `with torch.autocast(...)` or in a function that autocast decorates. A region that is
switched off (`enabled=False`) is not reported.

## Why it is wrong
Autocast is for the forward pass and the loss: backward runs each operator in the type that its forward chose. What is
new in backward, such as a custom function or a penalty on gradients, is cast again inside the region, in ways that
were not requested. PyTorch's documentation advises against it. What follows in the region, clipping and the optimizer's
step, is subject to it as well.

## Example
    with torch.autocast("cuda"):
        loss = criterion(model(images), labels)
        loss.backward()

## Use instead
    with torch.autocast("cuda"):
        loss = criterion(model(images), labels)
    loss.backward()

## Fix safety
Unsafe: the backward pass, and the step and its like behind it, go behind the `with`. Numbers may change in the last
places; comments above the moved lines stay where they are. There is no fix where anything else follows.

## References
- https://docs.pytorch.org/docs/stable/amp.html#torch.autocast
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, Code, InsertAfter, RemoveStatement, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context

code = "HL305"
title = "The backward pass runs inside autocast"
fix_safety: FixSafety = "unsafe"

_AUTOCAST = ("torch.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast")
_UPDATING = frozenset(
    {
        "backward",
        "step",
        "update",
        "zero_grad",
        "unscale_",
        "clip_grad_norm_",
        "clip_grad_value_",
        "parameters",
        "scale",
    }
)


def check(context: Context) -> Iterator[Violation]:
    """Each backward pass in a region of autocast that is not switched off."""
    for call in context.training.backward_calls:
        region = context.inside(call, *_AUTOCAST)
        if region is None:
            region = _decorator(context, call)
        if region is None or _is_off(context, region):
            continue
        yield Violation(
            call,
            "The backward pass runs inside autocast, which is for the forward pass and the loss only.",
            (Related(region, "the region"),),
            _edits(context, call, region),
        )


def _decorator(context: Context, call: ast.Call) -> ast.expr | None:
    function = context.tree.function(call)
    for it in function.decorator_list if function is not None else []:
        if isinstance(it, ast.Call) and context.qualified_name(it.func) in _AUTOCAST:
            return it
    return None


def _is_off(context: Context, region: ast.expr) -> bool:
    """Whether autocast is switched off there; ``enabled`` is first with the old names."""
    made = context.value(region)
    if not isinstance(made, ast.Call):
        return False
    new = context.qualified_name(made.func) == "torch.autocast"
    return context.constant(context.argument(made, "enabled", 2 if new else 0).value) is False


def _edits(context: Context, call: ast.Call, region: ast.expr) -> Change:
    """Move the backward pass and all that follows it out, if the region ends with them and contains nothing else."""
    statement = context.tree.statement(call)
    around = context.tree.parent(statement)
    if not isinstance(around, ast.With) or len(around.items) != 1 or around.items[0].context_expr is not region:
        return ()
    first = around.body.index(statement)
    tail = around.body[first:]
    if first == 0 or not all(_only_updates(it) for it in tail):
        return ()
    text = "\n".join(context.tree.source(it, limit=1000) for it in tail)
    return (*(RemoveStatement(Span.of(it)) for it in tail), InsertAfter(Span.of(around), Code(text)))


def _only_updates(statement: ast.stmt) -> bool:
    """Whether it is one line that autocast does not affect."""
    if not isinstance(statement, ast.Expr) or statement.lineno != statement.end_lineno:
        return False
    calls = [it for it in ast.walk(statement) if isinstance(it, ast.Call)]
    return bool(calls) and all(isinstance(it.func, ast.Attribute) and it.func.attr in _UPDATING for it in calls)


bad = {
    "at the region's end": """
        import torch

        for images, labels in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = criterion(model(images), labels)
                loss.backward()
            optimizer.step()
        """,
    "with a scaler, and the step behind it": """
        from torch.amp import GradScaler, autocast
        from torch.optim import SGD

        optimizer = SGD(model.parameters(), lr=0.1)
        scaler = GradScaler("cuda")
        for images, labels in loader:
            with autocast("cuda"):
                loss = criterion(model(images), labels)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            print("done")
        """,
    "the whole loop": """
        import torch

        with torch.cuda.amp.autocast():
            for images, labels in loader:
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
        """,
    "a decorator": """
        import torch

        @torch.autocast("cuda")
        def step(model, batch, optimizer):
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
        """,
}
fixed = {
    "at the region's end": """
        import torch

        for images, labels in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        """,
    "with a scaler, and the step behind it": """
        from torch.amp import GradScaler, autocast
        from torch.optim import SGD

        optimizer = SGD(model.parameters(), lr=0.1)
        scaler = GradScaler("cuda")
        for images, labels in loader:
            with autocast("cuda"):
                loss = criterion(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            print("done")
        """,
}
good = {
    "behind the region": """
        import torch

        for images, labels in loader:
            with torch.autocast("cuda"):
                loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        """,
    "switched off": """
        import torch

        for images, labels in loader:
            with torch.autocast("cuda", enabled=False):
                loss = criterion(model(images), labels)
                loss.backward()
            with torch.cuda.amp.autocast(False):
                model(images).mean().backward()
        """,
    "another context manager": """
        import torch

        for images, labels in loader:
            with torch.profiler.record_function("step"):
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
        """,
    "a function that is defined inside": """
        import torch

        with torch.autocast("cuda"):
            def closure():
                loss = model(images).mean()
                loss.backward()
                return loss
        """,
}
