"""Gradients are never cleared, so every step uses the sum of all before it.

## What it does
Finds a training loop with `loss.backward()` and `optimizer.step()` in a file that clears no gradients, neither by
`zero_grad()` nor by setting `.grad`, or that does so once, before the loop. It is silent where the optimizer is handed
to a function of another file, where model or optimizer are made again in each pass, and where gradients are touched in
any other way.

## Why it is wrong
`backward` adds to the gradients that are there. Without clearing, the second step uses the gradients of two batches,
the hundredth those of a hundred, most of them computed from weights that are long gone. Training becomes unstable or
stalls, and no error is raised.

## Example
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()

## Use instead
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

## Fix safety
Unsafe: `optimizer.zero_grad()` is put behind the step, which changes every number that follows.

## References
- https://docs.pytorch.org/docs/stable/optim.html#taking-an-optimization-step
- https://docs.pytorch.org/tutorials/recipes/recipes/zeroing_out_gradients.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, Code, InsertAfter, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.training import Repeated
from hotlap.source.lint.model.tree import LOOPS
from hotlap.source.lint.model.updates import Step, position, same

code = "HL302"
title = "Gradients are never cleared, so every step uses the sum of all before it"
fix_safety: FixSafety = "unsafe"

_TOUCHED = re.compile(r"zero_grads?\b|set_to_none|zero_gradients|clear_grads?\b|autograd\.grad\b")
_KNOWN_TAKERS = frozenset({"step", "unscale_", "prepare", "setup", "setup_optimizers", "append", "load_state_dict"})


def check(context: Context) -> Iterator[Violation]:
    """Each step in a loop with a backward pass, in a file that clears nothing."""
    if not context.updates.steps or _touches_gradients(context):
        return
    for step in context.updates.steps:
        place = context.training.loop_of(step.call)
        loop = place.node if place is not None else None
        if not isinstance(loop, LOOPS) or context.kind(step.optimizer) != "optimizer" or _short(loop):
            continue
        backward = [it for it in context.training.backward_calls if context.tree.within(it, loop)]
        if not backward or _cleared_otherwise(context, loop) or _made_in(context, step.optimizer, loop):
            continue
        if _handed_on(context, step.optimizer, loop):
            continue
        yield Violation(
            step.call,
            f"Nothing clears the gradients of `{context.tree.source(step.optimizer)}`, so each step uses those of all"
            " batches so far.",
            (Related(backward[0], "adds to the gradients"),),
            _edits(context, step),
        )


def _touches_gradients(context: Context) -> bool:
    """Whether the file sets or clears gradients in another way."""
    for attribute in context.tree.of(ast.Attribute):
        if attribute.attr in ("grad", "_grad"):
            above = context.tree.parent(attribute)
            stored = not isinstance(attribute.ctx, ast.Load)
            if stored or (
                isinstance(above, ast.Attribute) and above.attr in ("zero_", "fill_", "data", "mul_", "detach_")
            ):
                return True
    calls = {call.func.attr for call, _ in context.updates.clears if isinstance(call.func, ast.Attribute)}
    return bool(_TOUCHED.search(context.tree.text)) and not calls


def _cleared_otherwise(context: Context, loop: Repeated) -> bool:
    """Whether there is any clearing but one that runs once, before the loop, in the loop's own function."""
    function = context.tree.function(loop)
    for call, _ in context.updates.clears:
        before = context.tree.function(call) is function and position(call) < position(loop)
        if not before or next(context.loops(call), None) is not None:
            return True
    return False


def _made_in(context: Context, optimizer: ast.expr, loop: Repeated) -> bool:
    """Whether each pass makes its own optimizer, or its origin is unknown."""
    if isinstance(optimizer, ast.Name):
        return any(context.tree.within(it.node, loop) for it in context.bindings(optimizer))
    return False


def _handed_on(context: Context, optimizer: ast.expr, loop: Repeated) -> bool:
    """Whether the loop gives the optimizer to something that may clear it."""
    for call in (it for it in ast.walk(loop) if isinstance(it, ast.Call)):
        given = [*call.args, *(it.value for it in call.keywords)]
        if not any(same(it, optimizer) for it in given):
            continue
        if isinstance(call.func, ast.Attribute) and call.func.attr in _KNOWN_TAKERS:
            continue
        return True
    return False


def _short(loop: Repeated) -> bool:
    match loop:
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=0 | 1)])):
            return True
    return False


def _edits(context: Context, step: Step) -> Change:
    statement = context.tree.statement(step.call)
    if not isinstance(statement, ast.Expr) or not isinstance(step.optimizer, (ast.Name, ast.Attribute)):
        return ()
    text = context.tree.source(step.optimizer, limit=500)
    return (InsertAfter(Span.of(statement), Code(f"{text}.zero_grad()")),)


bad = {
    "forgotten": """
        import torch

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            print(loss.item())
        """,
    "once, before the loop": """
        import torch
        from torch import optim

        def train(model, loader):
            optimizer = optim.AdamW(model.parameters())
            optimizer.zero_grad()
            for images, labels in loader:
                loss = model(images, labels).mean()
                loss.backward()
                optimizer.step()
        """,
    "with a scaler": """
        import torch

        class Trainer:
            def __init__(self, model):
                self.model = model
                self.optimizer = torch.optim.Adam(model.parameters())
                self.scaler = torch.amp.GradScaler("cuda")

            def train(self, loader):
                for batch in loader:
                    with torch.autocast("cuda"):
                        loss = self.model(batch).mean()
                    self.scaler.scale(loss).backward()
                    self.scaler.step(self.optimizer)
                    self.scaler.update()
        """,
}
fixed = {
    "forgotten": """
        import torch

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(loss.item())
        """,
    "with a scaler": """
        import torch

        class Trainer:
            def __init__(self, model):
                self.model = model
                self.optimizer = torch.optim.Adam(model.parameters())
                self.scaler = torch.amp.GradScaler("cuda")

            def train(self, loader):
                for batch in loader:
                    with torch.autocast("cuda"):
                        loss = self.model(batch).mean()
                    self.scaler.scale(loss).backward()
                    self.scaler.step(self.optimizer)
                    self.optimizer.zero_grad()
                    self.scaler.update()
        """,
}
good = {
    "cleared in each step": """
        import torch

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        """,
    "the model is cleared, by a function": """
        import torch

        def clear(model):
            model.zero_grad()

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader:
            clear(model)
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        """,
    "by hand": """
        import torch

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader:
            for parameter in model.parameters():
                parameter.grad = None
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        """,
    "a new optimizer in each pass": """
        import torch

        for rate in rates:
            model = make_model()
            optimizer = torch.optim.SGD(model.parameters(), lr=rate)
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
        """,
    "the optimizer is handed to another file": """
        import torch

        from parts import finish

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            finish(optimizer)
        """,
    "what the optimizer is, is not known": """
        import torch

        from parts import make_optimizer

        optimizer = make_optimizer(model)
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        """,
}
