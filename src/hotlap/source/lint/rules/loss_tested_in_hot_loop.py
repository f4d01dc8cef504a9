"""Every training step waits for the device to test the loss.

## What it does
Finds `if torch.isnan(loss)`, `if not torch.isfinite(loss)`, `assert not loss.isnan()`, `if loss > limit`,
`math.isnan(loss)` and the like, where a tensor decides in every step of a training loop what Python does next: in the
loop itself or in a function that it calls. It is silent behind an interval, for what lies on the host, and in files
that use no accelerator.

## Why it is slow
A device works through a queue that Python fills ahead of it. A test needs the value, so Python waits until the device
has computed it, and while Python prepares the next step the device has nothing to do.

## Example
    for batch in loader:
        loss = model(batch.to(device)).mean()
        if torch.isnan(loss):
            raise RuntimeError("the loss is NaN")
        loss.backward()
        optimizer.step()

## Use instead
    healthy = torch.ones((), dtype=torch.bool, device=device)
    for step, batch in enumerate(loader):
        loss = model(batch.to(device)).mean()
        healthy &= torch.isfinite(loss.detach())
        loss.backward()
        optimizer.step()
        if step % 100 == 0 and not healthy:
            raise RuntimeError("a loss was not finite")

To leave out steps whose gradients are not finite, without waiting, use `torch.amp.GradScaler`, or an optimizer with
`found_inf`. `hotlap nan` finds where the first NaN comes from.

## Fix safety
None: how often a value has to be looked at is for a person to decide.

## References
- https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization
- https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.lint.api import FixSafety, Violation, called_from
from hotlap.source.lint.context import Context

code = "HL207"
title = "Every training step waits for the device to test the loss"
fix_safety: FixSafety = "none"
across_files = True

_FINITE = ("isnan", "isinf", "isfinite")
_OF_TORCH = frozenset(f"torch.{it}" for it in _FINITE)
_OF_PYTHON = frozenset(f"math.{it}" for it in _FINITE)  # numpy's refuse a tensor on a device
_REDUCES = frozenset({"any", "all", "sum", "max", "min", "mean"})


def check(context: Context) -> Iterator[Violation]:
    """Each test in every step that a loss decides, or whether some tensor is finite."""
    if not context.uses_accelerator:
        return
    for test in _tests(context):
        tensor = _tested(context, test)
        if tensor is None or context.place(tensor) == "host":
            continue
        place = context.place_in_every_step(test)
        if place is None:
            continue
        text = context.tree.source(test)
        yield Violation(test, f"Testing `{text}` waits for the device in every training step.", called_from(place))


def _tests(context: Context) -> Iterator[ast.expr]:
    """The parts of a test: of ``a and not b`` both ``a`` and ``b``."""
    waiting: list[ast.expr] = []
    for kind in (ast.If, ast.While, ast.IfExp, ast.Assert):
        waiting += (it.test for it in context.tree.of(kind))  # type: ignore[attr-defined]
    while waiting:
        test = waiting.pop()
        match test:
            case ast.BoolOp(values=values):
                waiting += values
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                waiting.append(operand)
            case _:
                yield test


def _tested(context: Context, test: ast.expr) -> ast.expr | None:
    """The tensor whose value a test needs; None for a test of something else."""
    match test:
        case ast.Call(func=function, args=[tensor]) if context.qualified_name(function) in _OF_PYTHON:
            return tensor if context.is_tensor(tensor) else None
        case ast.Compare(left=left, ops=[ast.Lt() | ast.Gt() | ast.LtE() | ast.GtE()], comparators=[right]):
            return next((it for it in (left, right) if context.kind(it) == "loss"), None)
    return _tested_for_finite(context, test)


def _tested_for_finite(context: Context, test: ast.expr) -> ast.expr | None:
    """``x`` of ``torch.isnan(x)``, ``x.isnan().any()``, ``torch.any(torch.isinf(x))``."""
    match test:
        case ast.Call(func=function, args=[tensor]) if context.qualified_name(function) in _OF_TORCH:
            return tensor if context.is_tensor(tensor) else None
        case ast.Call(func=function, args=[inner]) if context.qualified_name(function) in ("torch.any", "torch.all"):
            return _tested_for_finite(context, inner)
        case ast.Call(func=ast.Attribute(value=tensor, attr=name), args=[]) if name in _FINITE:
            return tensor if context.is_tensor(tensor) else None
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _REDUCES:
            return _tested_for_finite(context, inner)
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            return _tested_for_finite(context, inner)
    return None


bad = {
    "is it a number": """
        import torch

        for images, labels in loader:
            loss = criterion(model(images.to(device)), labels.to(device))
            if torch.isnan(loss):
                raise RuntimeError("the loss is NaN")
            loss.backward()
            optimizer.step()
        """,
    "a limit": """
        import torch

        for batch in loader:
            loss = model(batch.cuda()).mean()
            if loss > 100 * best:
                continue
            loss.backward()
            optimizer.step()
        """,
    "an assertion, one call away": """
        import torch
        import torch.nn.functional as F

        def step(model, optimizer, images, labels):
            loss = F.cross_entropy(model(images), labels)
            assert not loss.isnan().any()
            loss.backward()
            optimizer.step()

        for images, labels in loader:
            step(model, optimizer, images.cuda(), labels.cuda())
        """,
    "by Python's own function": """
        import math

        import torch

        for batch in loader:
            loss = model(batch.cuda()).mean()
            if not math.isfinite(loss) and not args.ignore:
                break
            loss.backward()
            optimizer.step()
        """,
}
good = {
    "every hundredth step": """
        import torch

        for step, batch in enumerate(loader):
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                if torch.isnan(loss):
                    raise RuntimeError("the loss is NaN")
        """,
    "the value was read before": """
        import math

        import torch

        for batch in loader:
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            value = loss.item()
            if math.isnan(value) or value > limit:
                raise RuntimeError("the loss is NaN")
        """,
    "there is one at all": """
        import torch

        for batch in loader:
            loss = model(batch.to(device)).mean()
            if loss is not None and batch.shape[0] > 1:
                loss.backward()
                optimizer.step()
        """,
    "once per epoch": """
        import torch

        for epoch in range(10):
            for batch in loader:
                loss = model(batch.to(device)).mean()
                loss.backward()
                optimizer.step()
            if loss < best:
                best = loss.detach()
        """,
    "by numpy, which takes nothing that lies on a device": """
        import numpy as np
        import torch

        for batch in loader:
            loss = model(batch.to(device)).mean()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if isinstance(norm, float) and np.isinf(norm):
                break
            loss.backward()
            optimizer.step()
        """,
    "on the host": """
        import torch

        for batch in loader:
            loss = model(batch).mean()
            if torch.isnan(loss):
                break
            loss.backward()
            optimizer.step()
        """,
}
