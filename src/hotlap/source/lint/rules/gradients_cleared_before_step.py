"""Gradients are cleared between backward and the optimizer's step.

## What it does
Finds `zero_grad()` that runs after the backward pass and before the step of the same optimizer, with no backward pass
in between. Where something in between may compute gradients, a function that the file does not show for instance, it is
silent.

## Why it is wrong
The step finds no gradients: it changes nothing, or, with weight decay and momentum, only that. The loss is computed and
printed as always, so nothing shows that the model does not learn.

## Example
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()

## Use instead
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

## Fix safety
Unsafe: `zero_grad` goes behind the step, so that the model learns. That changes every number that follows, and comments
above the line stay where they are.

## References
- https://docs.pytorch.org/docs/stable/optim.html#taking-an-optimization-step
- https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, Code, InsertAfter, RemoveStatement, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.updates import Step, position, same

code = "HL301"
title = "Gradients are cleared between backward and the optimizer's step"
fix_safety: FixSafety = "unsafe"


def check(context: Context) -> Iterator[Violation]:
    """Each clearing of gradients that the next step of the same block needs."""
    for call, cleared in context.updates.clears:
        step = _next_step(context, call, cleared)
        if step is None or context.updates.backwards_between(call, step.call):
            continue
        loop = context.training.loop_of(step.call)
        backward = [it for it in context.training.backward_calls if loop and context.tree.within(it, loop.node)]
        if not any(not context.updates.exclusive(it, call) for it in backward):
            continue
        text = context.tree.source(step.optimizer)
        yield Violation(
            call,
            f"The gradients are cleared right before the step of `{text}` needs them, so it learns nothing.",
            (Related(step.call, "the step"), Related(backward[0], "the backward pass")),
            _edits(context, call, step),
        )


def _next_step(context: Context, call: ast.Call, cleared: ast.expr) -> Step | None:
    """The step behind the call, in the same block, of the optimizer that is cleared; of any, where a model is."""
    of_model = context.kind(cleared) in ("module", "compiled")
    statement = context.tree.statement(call)
    for step in context.updates.steps:
        if position(step.call) <= position(call) or context.tree.function(step.call) is not context.tree.function(call):
            continue
        if not (of_model or same(step.optimizer, cleared)):
            continue
        together = context.tree.block(context.tree.statement(step.call)) == context.tree.block(statement)
        return step if together else None
    return None


def _edits(context: Context, call: ast.Call, step: Step) -> Change:
    cleared, stepped = context.tree.statement(call), context.tree.statement(step.call)
    plain = isinstance(cleared, ast.Expr) and cleared.value is call and isinstance(stepped, ast.Expr)
    if (
        not plain
        or cleared.lineno != cleared.end_lineno
        or context.tree.parent(cleared) is not context.tree.parent(stepped)
    ):
        return ()
    text = context.tree.source(call, limit=500)
    return RemoveStatement(Span.of(cleared)), InsertAfter(Span.of(stepped), Code(text))


bad = {
    "between backward and step": """
        import torch

        optimizer = torch.optim.AdamW(model.parameters())
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()
            scheduler.step()
        """,
    "with a scaler, behind clipping": """
        import torch

        def train(model, loader, optimizer, scaler):
            for images, labels in loader:
                with torch.autocast("cuda"):
                    loss = model(images, labels).mean()
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.zero_grad(set_to_none=True)
                scaler.step(optimizer)
                scaler.update()
        """,
    "the backward pass comes last": """
        import torch

        def train(self, loader):
            for images, labels in loader:
                self.optimizer.zero_grad()
                loss = self.model(images, labels).mean()
                loss.backward()
                if self.step % 4 == 3:
                    self.optimizer.zero_grad()
                    self.optimizer.step()
        """,
}
fixed = {
    "between backward and step": """
        import torch

        optimizer = torch.optim.AdamW(model.parameters())
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
        """,
    "with a scaler, behind clipping": """
        import torch

        def train(model, loader, optimizer, scaler):
            for images, labels in loader:
                with torch.autocast("cuda"):
                    loss = model(images, labels).mean()
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                optimizer.zero_grad(set_to_none=True)
                scaler.update()
        """,
}
good = {
    "before the forward pass": """
        import torch

        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        """,
    "behind the step": """
        import torch

        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "another optimizer's gradients": """
        import torch

        for images, labels in loader:
            loss = generator(images).mean()
            loss.backward()
            optimizer_d.zero_grad()
            optimizer_g.step()
            loss_d = discriminator(images).mean()
            loss_d.backward()
            optimizer_d.step()
        """,
    "gradients come from a function": """
        import torch

        from parts import compute_gradients

        for images, labels in loader:
            loss = model(images).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            compute_gradients(model, labels)
            optimizer.step()
        """,
    "gradients are copied from another model": """
        import torch

        def share(model, shared, optimizer, loader):
            for batch in loader:
                loss = model(batch).mean()
                loss.backward()
                optimizer.zero_grad()
                for mine, theirs in zip(model.parameters(), shared.parameters()):
                    theirs._grad = mine.grad
                optimizer.step()
        """,
}
