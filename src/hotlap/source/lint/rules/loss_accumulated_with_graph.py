"""A loss is added up or collected together with its graph.

## What it does
Finds a running sum or mean, or a list, that outlives the training step and takes in the loss itself: `total += loss`,
`ema = 0.9 * ema + 0.1 * loss`, `losses.append(loss)`, `outputs.append({"loss": loss})`, `self.losses.append(loss)`. It
reports a loss only where backward is called on it in the same step, so that its graph has served its purpose. It is
silent where the loss was detached or turned into a number, where gradients are off or a graph is retained, and where
the sum or list is used for a backward pass of its own or starts again in every step.

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
Unsafe: `.detach()` is put behind the loss. The sum has the same value; code of another file that calls `backward` on
it would fail.

## References
- https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from hotlap.source.edits.kinds import Code, Span, WrapExpression
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.names import Binding
from hotlap.source.lint.model.training import HotPlace

code = "HL501"
title = "A loss is added up or collected together with its graph"
fix_safety: FixSafety = "unsafe"
across_files = True
measured = (
    "Without it a script made to show it trains 1.01x as fast (95 % interval 0.98 to 1.05), on 2 cores, 24 "
    "GiB, no accelerator (docs/benchmarks/lint-impact.md)."
)


def check(context: Context) -> Iterator[Violation]:
    """Each place where a loss with its graph enters a sum or a container that outlives the step."""
    for addition in context.tree.of(ast.AugAssign):
        if isinstance(addition.op, ast.Add):
            yield from _kept(context, addition, addition.target, [addition.value], "added up")
    for assignment in context.tree.of(ast.Assign):
        if len(assignment.targets) == 1:
            target = assignment.targets[0]
            parts = _added(context, target, assignment.value)
            yield from _kept(context, assignment, target, parts, "added up")
    for call, function in context.methods("append"):
        if len(call.args) == 1 and not call.keywords:
            yield from _kept(context, call, function.value, list(_collected(call.args[0])), "collected")


def _added(context: Context, target: ast.expr, value: ast.expr) -> list[ast.expr]:
    """The value added to the target: ``loss`` of ``total = total + loss``, ``ema = .9 * ema + .1 * loss``."""
    if not isinstance(target, (ast.Name, ast.Attribute)) or not isinstance(value, (ast.BinOp, ast.IfExp)):
        return []
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and _is_same(value.left, target):
        return [value.right]
    leaves = list(_leaves(value))
    if not any(_is_same(it, target) for it in leaves):
        return []
    return [it for it in leaves if not _is_same(it, target) and context.kind(it) == "loss"]


def _is_same(one: ast.expr, other: ast.expr) -> bool:
    """Whether both are the same name, or the same attribute of one."""
    match one, other:
        case ast.Name(id=first), ast.Name(id=second):
            return first == second
        case ast.Attribute(value=inner, attr=first), ast.Attribute(value=of, attr=second):
            return first == second and _is_same(inner, of)
    return False


def _leaves(value: ast.expr) -> Iterator[ast.expr]:
    """The operands of arithmetic, also nested ones."""
    match value:
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            yield from _leaves(left)
            yield from _leaves(right)
        case _:
            yield value


def _collected(value: ast.expr) -> Iterator[ast.expr]:
    """The values that are put into a container: of a dictionary or tuple each of its own."""
    match value:
        case ast.Dict(values=values) | ast.Tuple(elts=values) | ast.List(elts=values):
            for it in values:
                yield from _collected(it)
        case _:
            yield value


def _kept(
    context: Context, where: ast.AST, into: ast.expr, parts: Sequence[ast.expr], verb: str
) -> Iterator[Violation]:
    losses = [it for it in parts if context.kind(it) == "loss"]
    place = context.hot_place(where) if losses else None
    if place is None or context.gradients_off(where) or not _outlives(context, into, place):
        return
    for loss in losses:
        if not _is_spent(context, loss, place.loop.node) or _is_detached_later(context, loss):
            continue
        text = context.tree.source(loss)
        detached = f"({text}).detach()" if isinstance(loss, ast.BinOp) else f"{text}.detach()"
        yield Violation(
            where,
            f"`{text}` is {verb} together with its graph, which then stays in memory; use `{detached}`.",
            edits=(WrapExpression(Span.of(loss), Code("_.detach()")),),
        )


def _outlives(context: Context, into: ast.expr, place: HotPlace) -> bool:
    """Whether the sum or container was made outside of the loop, is not made again in its steps, and no backward pass
    is called on what is made of it: then the graph is wanted."""
    while isinstance(into, ast.Subscript):
        into = into.value
    loop = place.loop.node
    if isinstance(into, ast.Attribute):
        # An object keeps what it is given, unless each step begins by replacing it.
        assigned = (it for it in context.tree.of(ast.Assign) if any(_is_same(to, into) for to in it.targets))
        replaced = [it for it in assigned if context.hot_place(it) is not None and not _mentions(it.value, into)]
        of_self = isinstance(into.value, ast.Name) and into.value.id == "self"
        return of_self and not replaced and not _read_by_backward(context, into)
    if not isinstance(into, ast.Name) or place.call is not None:
        return False
    home = context.names.home(into)
    if home is None or context.kinds.bound_for_backward(home, into.id):
        return False
    bindings = context.names.bindings_in(home, into.id)
    made = [it for it in bindings if it.how in ("assign", "unpack") and not _adds_to_itself(it)]
    return bool(made) and not any(context.tree.within(it.node, loop) for it in made)


def _read_by_backward(context: Context, attribute: ast.Attribute) -> bool:
    """Whether the attribute is part of what backward is called on, also by one assignment."""
    for receiver in context.call_graph.backward_receivers():
        names = [it for it in ast.walk(receiver) if isinstance(it, ast.Name)]
        values = [it.value for name in names for it in context.bindings(name) if it.value is not None]
        if any(_mentions(it, attribute) for it in (receiver, *values)):
            return True
    return False


def _mentions(value: ast.expr, attribute: ast.Attribute) -> bool:
    return any(isinstance(it, ast.Attribute) and _is_same(it, attribute) for it in ast.walk(value))


def _adds_to_itself(binding: Binding) -> bool:
    value = binding.value
    return value is not None and any(isinstance(it, ast.Name) and it.id == binding.name for it in ast.walk(value))


def _is_spent(context: Context, loss: ast.expr, loop: ast.AST) -> bool:
    """Whether backward is called on the loss in the same step, so that its graph is of no more use: here, or in the
    function that gave it back. Where a graph is retained it may be wanted."""
    for call in context.training.backward_calls:
        retains = any(it.arg in ("retain_graph", "create_graph") for it in call.keywords)
        if retains and context.tree.function(call) is context.tree.function(loss):
            return False
    names = [it for it in ast.walk(loss) if isinstance(it, ast.Name) and context.kind(it) == "loss"]
    return any(context.kinds.reaches_backward(it) or _was_spent_by_a_call(context, it) for it in names)


def _was_spent_by_a_call(context: Context, name: ast.Name) -> bool:
    """Whether the name holds what a function gave back that had called backward on it: ``loss = step(batch)``."""
    for binding in context.bindings(name):
        callee = context.callee(binding.value) if isinstance(binding.value, ast.Call) else None
        for given in context.call_graph.returns(callee) if callee is not None else ():
            returned = (it for it in ast.walk(given) if isinstance(it, ast.Name) and context.kind(it) == "loss")
            if any(context.kinds.reaches_backward(it) for it in returned):
                return True
    return False


def _is_detached_later(context: Context, loss: ast.expr) -> bool:
    """Whether the loss is detached in place: ``loss.detach_()``."""
    names = {it.id for it in ast.walk(loss) if isinstance(it, ast.Name)}
    return any(isinstance(it.value, ast.Name) and it.value.id in names for _, it in context.methods("detach_"))


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
    "in a dictionary": """
        import torch

        outs = []
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            outs.append({"loss": loss, "size": len(batch)})
        """,
    "a moving average": """
        import torch

        ema = 0.0
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            ema = 0.9 * ema + 0.1 * loss
        """,
    "what a step gave back": """
        import torch

        class Trainer:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = model, optimizer
                self.losses = []

            def train_step(self, batch):
                loss = self._loss(batch)
                loss.backward()
                self.optimizer.step()
                return loss

            def _loss(self, batch):
                return self.model(batch).mean()

            def fit(self, loader):
                for batch in loader:
                    loss = self.train_step(batch)
                    self.losses.append(loss)
        """,
    "of which backward is called on a part": """
        import torch
        import torch.nn.functional as F

        total = 0.0
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            whole = loss + penalty(model)
            whole.backward()
            optimizer.step()
            total += loss
        """,
}
fixed = {
    "in a dictionary": """
        import torch

        outs = []
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            outs.append({"loss": loss.detach(), "size": len(batch)})
        """,
    "a moving average": """
        import torch

        ema = 0.0
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            ema = 0.9 * ema + 0.1 * loss.detach()
        """,
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
    "a graph that is wanted later": """
        import torch
        import torch.nn.functional as F

        losses = []
        for step, (images, labels) in enumerate(loader):
            loss = F.cross_entropy(model(images), labels)
            losses.append(loss)
            if step % 4 == 3:
                mean = sum(losses) / len(losses)
                scaled = mean * weight
                scaled.backward()
                optimizer.step()
                losses = []
        """,
    "a sum that another function learns from": """
        import torch
        import torch.nn.functional as F

        def losses_of(model, parts):
            total = 0.0
            for images, labels in parts:
                total = total + F.cross_entropy(model(images), labels)
            return total

        for parts in loader:
            losses_of(model, parts).backward()
            optimizer.step()
        """,
    "a graph that is retained": """
        import torch
        import torch.nn.functional as F

        memory = 0.0
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels) + 0.1 * memory
            loss.backward(retain_graph=True)
            optimizer.step()
            memory = memory + loss
        """,
    "an attribute that each step replaces": """
        import torch

        class Trainer:
            def train_step(self, batch):
                self.total = 0.0
                loss = self.model(batch).mean()
                loss.backward()
                self.optimizer.step()
                self.total += loss

            def fit(self, loader):
                for batch in loader:
                    self.train_step(batch)
        """,
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
