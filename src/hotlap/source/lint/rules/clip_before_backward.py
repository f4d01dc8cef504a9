"""Gradients are clipped before backward has computed them.

## What it does
Finds `clip_grad_norm_` or `clip_grad_value_` in a training loop before the step's backward, where the same pass of the
loop calls neither backward before the clipping nor `optimizer.step()` between the two. It is silent where a function
that is called before it may compute gradients.

## Why it is wrong
At that point there are no gradients, or those of the step before, which have been applied already. The new ones go into
the update unclipped, so the limit has no effect, and training diverges where it was meant not to.

## Example
    loss = criterion(model(images), labels)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    loss.backward()
    optimizer.step()

## Use instead
    loss = criterion(model(images), labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

## Fix safety
Unsafe: clipping goes behind backward. Updates become smaller where the limit is exceeded, which is what it was meant
for; comments above the line stay where they are.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
- https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, Code, InsertAfter, RemoveStatement, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.tree import word
from hotlap.source.lint.model.updates import position

code = "HL306"
title = "Gradients are clipped before backward has computed them"
fix_safety: FixSafety = "unsafe"

_MAY_COMPUTE = re.compile(
    r"backward|(^|_)(grads?|gradients?|step|update|closure|optimi[sz]e|learn|train)(_|$)", re.IGNORECASE
)
_HARMLESS = frozenset({"zero_grad", "train", "no_grad", "set_grad_enabled", "requires_grad_"})


def check(context: Context) -> Iterator[Violation]:
    """Each clipping of gradients that the pass has not computed yet."""
    for clip in context.updates.clips:
        place = context.training.loop_of(clip)
        backward = _backward_after(context, clip, place.node) if place is not None else None
        if backward is None:
            continue
        yield Violation(
            clip,
            "There are no gradients yet to clip: backward computes them only afterwards, and they stay unclipped.",
            (Related(backward, "computes the gradients"),),
            _edits(context, clip, backward),
        )


def _backward_after(context: Context, clip: ast.Call, loop: ast.AST) -> ast.Call | None:
    """The backward pass after the clipping, in the same pass of the loop, with the step after both."""
    function = context.tree.function(clip)
    inside = [it for it in context.training.backward_calls if context.tree.within(it, loop)]
    if not inside or any(position(it) < position(clip) for it in inside):
        return None
    backward = min(inside, key=position)
    steps = [it.call for it in context.updates.steps if context.tree.within(it.call, loop)]
    if context.tree.function(backward) is not function or context.updates.exclusive(backward, clip):
        return None
    if not steps or any(position(it) < position(backward) for it in steps):
        return None
    return None if _may_have_gradients(context, clip, loop) else backward


def _may_have_gradients(context: Context, clip: ast.Call, loop: ast.AST) -> bool:
    """Whether something before the clipping, in its pass, may compute gradients of its own."""
    for call in (it for it in ast.walk(loop) if isinstance(it, ast.Call)):
        if position(call) >= position(clip):
            continue
        name = word(call.func)
        if name not in _HARMLESS and _MAY_COMPUTE.search(name):
            return True
        callee = context.callee(call)
        if callee is not None and any(context.tree.within(it, callee) for it in context.training.backward_calls):
            return True
    return False


def _edits(context: Context, clip: ast.Call, backward: ast.Call) -> Change:
    """Only for plain statements of one block, and where nothing scales the loss."""
    clipping, computing = context.tree.statement(clip), context.tree.statement(backward)
    plain = isinstance(clipping, ast.Expr) and clipping.value is clip and clipping.lineno == clipping.end_lineno
    if not plain or not isinstance(computing, ast.Expr) or context.updates.scaled:
        return ()
    if context.tree.parent(clipping) is not context.tree.parent(computing):
        return ()
    there = tuple(sorted({it.id for it in ast.walk(clip) if isinstance(it, ast.Name)}))
    clipping_later = Code(context.tree.source(clip, limit=500), knows=there)
    return RemoveStatement(Span.of(clipping)), InsertAfter(Span.of(computing), clipping_later)


bad = {
    "before backward": """
        import torch

        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            loss.backward()
            optimizer.step()
        """,
    "by value, in a function": """
        from torch import nn

        def train(model, loader, optimizer):
            for batch in loader:
                loss = model(batch).mean()
                optimizer.zero_grad()
                nn.utils.clip_grad_value_(model.parameters(), 0.5)
                loss.backward()
                optimizer.step()
        """,
    "with a scaler": """
        import torch

        scaler = torch.amp.GradScaler("cuda")
        for images, labels in loader:
            with torch.autocast("cuda"):
                loss = model(images, labels).mean()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
}
fixed = {
    "before backward": """
        import torch

        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        """,
}
good = {
    "behind backward": """
        import torch

        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        """,
    "the step of the pass before": """
        import torch

        for images, labels in loader:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
        """,
    "a second model": """
        import torch

        for images in loader:
            critic_loss = critic(images).mean()
            critic_loss.backward()
            torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
            critic_optimizer.step()
            loss = critic(generator(noise)).mean()
            loss.backward()
            optimizer.step()
        """,
    "something else computes gradients": """
        import torch

        from parts import add_gradients

        for images, labels in loader:
            add_gradients(model, images)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        """,
}
