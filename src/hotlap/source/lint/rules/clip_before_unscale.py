"""Gradients are clipped while they are still scaled.

## What it does
Finds `clip_grad_norm_` or `clip_grad_value_` between `scaler.scale(loss).backward()` and `scaler.step(optimizer)` with
no `scaler.unscale_(optimizer)` before it. It is silent where clipping and the scaled backward pass are in different
branches, or behind a condition of its own.

## Why it is wrong
The scaler multiplies the loss by a large factor, 65536 at first, so that small gradients survive in float16. Their norm
is that much larger too: clipping to 1.0 then clips nearly every step to a 65536th of what was meant, and by another
amount whenever the scale changes.

## Example
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()

## Use instead
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()

## Fix safety
Unsafe: `scaler.unscale_(optimizer)` is put before the clipping. Updates become larger, which is what the limit meant.

## References
- https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, Code, InsertBefore, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.updates import Scaled, Step, position, same

code = "HL303"
title = "Gradients are clipped while they are still scaled"
fix_safety: FixSafety = "unsafe"


def check(context: Context) -> Iterator[Violation]:
    """Each clipping of gradients that the scaler has not divided yet."""
    unscaled = [call for call, _ in context.methods("unscale_", "unscale_gradients", "unscale")]
    for scaled in context.updates.scaled:
        if _is_off(context, scaled.scaler):
            continue
        for clip in context.updates.clips:
            step = _step_after(context, scaled, clip)
            if step is None or any(_may_precede(context, it, clip) for it in unscaled):
                continue
            text = context.tree.source(scaled.scaler)
            yield Violation(
                clip,
                f"These gradients are still scaled: without `{text}.unscale_` the limit means something else.",
                (Related(scaled.call, "the loss is scaled here"), Related(step.call, "unscaled here, too late")),
                _edits(context, scaled, clip, step),
            )


def _step_after(context: Context, scaled: Scaled, clip: ast.Call) -> Step | None:
    """The scaler's step behind the clipping, where all three run in one pass."""
    tree = context.tree
    if tree.function(clip) is not tree.function(scaled.call) or position(clip) < position(scaled.call):
        return None
    if context.updates.exclusive(scaled.call, clip) or _on_condition(context, scaled, clip):
        return None
    for step in context.updates.steps:
        if step.scaler is None or not same(step.scaler, scaled.scaler) or position(step.call) < position(clip):
            continue
        if tree.function(step.call) is tree.function(clip) and not context.updates.exclusive(step.call, clip):
            return step
    return None


def _on_condition(context: Context, scaled: Scaled, clip: ast.Call) -> bool:
    """Whether clipping is inside an ``if`` about the scaler or the precision, and the backward pass is not."""
    words = {it.id for it in ast.walk(scaled.scaler) if isinstance(it, ast.Name)} - {"self"}
    words |= {it.attr for it in ast.walk(scaled.scaler) if isinstance(it, ast.Attribute)}
    for above in context.tree.ancestors(clip):
        if context.tree.within(scaled.call, above):
            return False
        if isinstance(above, ast.If):
            for it in ast.walk(above.test):
                text = it.id if isinstance(it, ast.Name) else it.attr if isinstance(it, ast.Attribute) else ""
                if text in words or any(part in text.lower() for part in ("amp", "fp16", "precision", "half", "scal")):
                    return True
    return False


def _may_precede(context: Context, unscale: ast.Call, clip: ast.Call) -> bool:
    """Whether gradients may have been unscaled by then: above in the same function, or in another one."""
    if context.tree.function(unscale) is not context.tree.function(clip):
        return True
    return position(unscale) < position(clip)


def _is_off(context: Context, scaler: ast.expr) -> bool:
    made = context.value(scaler)
    if not isinstance(made, ast.Call):
        return False
    return context.constant(context.argument(made, "enabled").value) is False


def _edits(context: Context, scaled: Scaled, clip: ast.Call, step: Step) -> Change:
    """Only where clipping runs as often as the step: unscaling twice in one update is an error."""
    tree = context.tree
    clipping, stepping = tree.statement(clip), tree.statement(step.call)
    if tree.block(clipping) != tree.block(stepping) or not isinstance(clipping, (ast.Expr, ast.Assign)):
        return ()
    steps = [it for it in context.updates.steps if same(it.scaler, scaled.scaler)]
    if len(steps) != 1 or not isinstance(step.optimizer, (ast.Name, ast.Attribute)):
        return ()
    text = f"{tree.source(scaled.scaler, limit=500)}.unscale_({tree.source(step.optimizer, limit=500)})"
    return (InsertBefore(Span.of(clipping), Code(text)),)


bad = {
    "no unscale": """
        import torch

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for images, labels in loader:
            with torch.autocast("cuda"):
                loss = model(images, labels).mean()
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        """,
    "unscaled behind it": """
        from torch import nn
        from torch.cuda.amp import GradScaler

        class Trainer:
            def __init__(self, model, optimizer):
                self.scaler = GradScaler()

            def step(self, loss):
                self.scaler.scale(loss).backward()
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=5)
                self.scaler.unscale_(self.optimizer)
                self.scaler.step(self.optimizer)
                self.scaler.update()
        """,
    "at every fourth step": """
        import torch
        from torch.nn.utils import clip_grad_value_

        def train(model, loader, optimizer, scaler):
            for step, batch in enumerate(loader):
                scaler.scale(model(batch).mean() / 4).backward()
                if (step + 1) % 4 == 0:
                    if max_norm > 0:
                        clip_grad_value_(model.parameters(), max_norm)
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()
        """,
}
fixed = {
    "no unscale": """
        import torch

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for images, labels in loader:
            with torch.autocast("cuda"):
                loss = model(images, labels).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        """,
}
good = {
    "unscaled first": """
        import torch

        for images, labels in loader:
            loss = model(images, labels).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        """,
    "each branch has its own": """
        import torch

        for images, labels in loader:
            loss = model(images, labels).mean()
            if use_amp:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        """,
    "clipped only without a scaler": """
        import torch

        for images, labels in loader:
            loss = model(images, labels).mean()
            scaler.scale(loss).backward()
            if not scaler.is_enabled():
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        """,
    "no scaler at all": """
        import torch

        for images, labels in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(images, labels).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        """,
    "unscaled in a function": """
        import torch

        def unscale(scaler, optimizer):
            scaler.unscale_(optimizer)

        for images, labels in loader:
            loss = model(images, labels).mean()
            scaler.scale(loss).backward()
            unscale(scaler, optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        """,
}
