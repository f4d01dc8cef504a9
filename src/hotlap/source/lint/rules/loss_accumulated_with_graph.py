"""A loss is added up or collected together with its graph.

## What it does
Finds a running sum or a list outside of a training step that takes in the loss itself: `total += loss`,
`total = total + loss`, `losses.append(loss)`. It is silent where the loss was detached or turned into a number, where
gradients are off, and where the sum or list is used for a backward pass of its own or begins anew in every step.

## Why it is slow
A loss that is not detached remembers how it was computed. Its graph, with every intermediate result that backward has
not freed, and the graph of the sum itself, stay alive as long as the sum does, so memory grows from step to step.

## Example
    total = 0.0
    for batch in loader:
        loss = criterion(model(batch), target)
        loss.backward()
        optimizer.step()
        total += loss

## Use instead
    total = 0.0
    for batch in loader:
        loss = criterion(model(batch), target)
        loss.backward()
        optimizer.step()
        total += loss.detach()

`loss.item()` frees the graph as well, but waits for the device in every step; turn the sum into a number once, where it
is reported.

## Fix safety
Unsafe: `.detach()` is put behind the loss. The sum has the same value; code that calls `backward` on it somewhere else
would fail.

## References
- https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Code, Span, WrapExpression
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context

code = "HL501"
title = "A loss is added up or collected together with its graph"
fix_safety: FixSafety = "unsafe"
measured = (
    "Without it a script made to show it trains 1.01x as fast (95 % interval 0.98 to 1.05), on 2 cores, 24 "
    "GiB, no accelerator (docs/benchmarks/lint-impact.md)."
)


def check(context: Context) -> Iterator[Violation]:
    """Each place where a loss with its graph enters a sum or list that outlives the step."""
    for addition in context.tree.of(ast.AugAssign):
        if isinstance(addition.op, ast.Add):
            yield from _kept(context, addition, addition.target, addition.value, "added up")
    for assignment in context.tree.of(ast.Assign):
        match assignment:
            case ast.Assign(targets=[target], value=ast.BinOp(left=left, op=ast.Add(), right=right)):
                if ast.dump(_loaded(target)) == ast.dump(left):
                    yield from _kept(context, assignment, target, right, "added up")
    for call, function in context.methods("append"):
        if len(call.args) == 1 and not call.keywords:
            yield from _kept(context, call, function.value, call.args[0], "collected")


def _kept(context: Context, where: ast.AST, into: ast.expr, loss: ast.expr, verb: str) -> Iterator[Violation]:
    place = context.hot_place(where)
    if place is None or place.call is not None or context.kind(loss) != "loss" or context.gradients_off(where):
        return
    if not isinstance(into, ast.Name) or not _outlives(context, into, place.loop.node):
        return
    if _needs_its_graph(context, into) or _is_detached_later(context, loss, where):
        return
    text = context.tree.source(loss)
    detached = f"({text}).detach()" if isinstance(loss, ast.BinOp) else f"{text}.detach()"
    yield Violation(
        where,
        f"`{text}` is {verb} together with its graph, which then stays in memory; use `{detached}`.",
        edits=(WrapExpression(Span.of(loss), Code("_.detach()")),),
    )


def _outlives(context: Context, name: ast.Name, loop: ast.AST) -> bool:
    """Whether the sum or list was made outside of the loop and is not made anew in its steps."""
    home = context.names.home(name)
    if home is None:
        return False
    bindings = context.names.bindings_in(home, name.id)
    made = [it for it in bindings if it.how in ("assign", "unpack") and not _adds_to_itself(context, it.node)]
    return bool(made) and not any(context.tree.within(it.node, loop) for it in made)


def _adds_to_itself(context: Context, node: ast.AST) -> bool:
    statement = context.tree.statement(node)
    value = statement.value if isinstance(statement, ast.Assign) else None
    return (
        isinstance(value, ast.BinOp) and isinstance(node, ast.Name) and ast.dump(value.left) == ast.dump(_loaded(node))
    )


def _needs_its_graph(context: Context, name: ast.Name) -> bool:
    """Whether backward is called on the sum, or the list is summed or stacked for it: then the graph is meant."""
    home = context.names.home(name)
    for call in context.training.backward_calls:
        for used in ast.walk(call):
            if isinstance(used, ast.Name) and used.id == name.id and context.names.home(used) is home:
                return True
            if isinstance(used, ast.Name) and any(_mentions(it.value, name.id) for it in context.bindings(used)):
                return True
    return False


def _mentions(value: ast.expr | None, name: str) -> bool:
    return value is not None and any(isinstance(it, ast.Name) and it.id == name for it in ast.walk(value))


def _is_detached_later(context: Context, loss: ast.expr, where: ast.AST) -> bool:
    """Whether the loss is detached in place: ``loss.detach_()``."""
    names = {it.id for it in ast.walk(loss) if isinstance(it, ast.Name)}
    return any(isinstance(it.value, ast.Name) and it.value.id in names for _, it in context.methods("detach_"))


def _loaded(target: ast.expr) -> ast.expr:
    """A simple target as it reads in an expression."""
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target


bad = {
    "a running sum": """
        import torch.nn as nn

        criterion = nn.CrossEntropyLoss()
        total = 0.0
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss
        """,
    "a list": """
        import torch
        import torch.nn.functional as F

        def train(model, loader, optimizer):
            losses = []
            for images, labels in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss)
            return torch.stack(losses).mean()
        """,
    "written out, and weighted": """
        import torch

        def train(model, loader, optimizer):
            running = 0
            for batch in loader:
                loss = model(batch).mean()
                loss.backward()
                optimizer.step()
                running = running + loss * len(batch)
        """,
}
fixed = {
    "a running sum": """
        import torch.nn as nn

        criterion = nn.CrossEntropyLoss()
        total = 0.0
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        """,
    "written out, and weighted": """
        import torch

        def train(model, loader, optimizer):
            running = 0
            for batch in loader:
                loss = model(batch).mean()
                loss.backward()
                optimizer.step()
                running = running + (loss * len(batch)).detach()
        """,
}
good = {
    "a number": """
        import torch

        total = 0.0
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
        """,
    "detached": """
        import torch

        losses = []
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        """,
    "a sum of losses that backward is called on": """
        import torch
        import torch.nn.functional as F

        for batch in loader:
            total = 0
            for head in heads:
                loss = F.mse_loss(head(batch), batch)
                total += loss
            total.backward()
            optimizer.step()
        """,
    "gathered over steps for one backward": """
        import torch
        import torch.nn.functional as F

        losses = []
        for step, batch in enumerate(loader):
            loss = F.mse_loss(model(batch), batch)
            losses.append(loss)
            if step % 4 == 3:
                torch.stack(losses).sum().backward()
                optimizer.step()
                losses = []
        """,
    "evaluation": """
        import torch
        import torch.nn.functional as F

        def evaluate(model, loader):
            total = 0
            with torch.no_grad():
                for images, labels in loader:
                    loss = F.cross_entropy(model(images), labels)
                    total += loss
            return total
        """,
    "the name holds a number by then": """
        import torch

        total = 0.0
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            loss = loss.item()
            total += loss
        """,
}
