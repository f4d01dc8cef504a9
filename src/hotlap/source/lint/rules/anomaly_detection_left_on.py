"""Autograd's anomaly detection is switched on for good.

## What it does
Finds `torch.autograd.set_detect_anomaly(True)`, `with torch.autograd.detect_anomaly():` and Lightning's
`Trainer(detect_anomaly=True)`, where nothing decides whether it happens: no condition around it, no flag as its
argument, and no call that switches it off again.

## Why it is slow
Every operation of the forward pass then records the Python stack that led to it, and the backward pass looks into the
result of every operation for NaN, for which it waits for the device each time.

## Example
    torch.autograd.set_detect_anomaly(True)
    for batch in loader:
        model(batch).mean().backward()

## Use instead
    for batch in loader:
        model(batch).mean().backward()

While looking for NaN, switch it on by a flag of the command line; `hotlap nan` finds the operation as well.

## Fix safety
Unsafe: the call, the `with` or the argument is taken out. What is computed stays the same, but a NaN no longer ends
training with an error.

## References
- https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import RemoveKeyword, RemoveStatement, Span, Unwrap
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context

code = "HL205"
title = "Autograd's anomaly detection is switched on for good"
fix_safety: FixSafety = "unsafe"
across_files = True
measured = (
    "Without it a script made to show it trains 3.71x as fast (95 % interval 3.60 to 3.83), on 2 cores, 24 "
    "GiB, no accelerator (docs/benchmarks/lint-impact.md)."
)

_SWITCH = "torch.autograd.set_detect_anomaly"
_WITHIN = "torch.autograd.detect_anomaly"
_TRAINERS = ("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer")
_CONDITIONS = (ast.If, ast.IfExp, ast.BoolOp, ast.Try, ast.match_case)


def check(context: Context) -> Iterator[Violation]:
    """Each place that switches it on in every run."""
    switches = list(context.calls(_SWITCH))
    modes = [context.argument(it, "mode", 0) for it in switches]
    if not any(it.given and context.constant(it.value) is not True for it in modes):
        for call, mode in zip(switches, modes, strict=True):
            if mode.given and context.constant(mode.value) is True and _always(context, call):
                yield from _switched_on(context, call)
    for call in context.calls(_WITHIN):
        item = context.tree.parent(call)
        statement = context.tree.parent(item) if item is not None else None
        checks = context.argument(call, "check_nan", 0)
        if isinstance(statement, ast.With) and checks.absent and _always(context, statement):
            edits = (Unwrap(Span.of(statement)),) if len(statement.items) == 1 else ()
            yield Violation(call, "Anomaly detection slows every operation of what runs in this block.", edits=edits)
    for call in context.calls(*_TRAINERS):
        chosen = context.argument(call, "detect_anomaly")
        if chosen.given and chosen.through is None and context.constant(chosen.value) is True:
            edit = RemoveKeyword(Span.of(call), "detect_anomaly")
            yield Violation(chosen.value or call, "Anomaly detection slows every training step.", edits=(edit,))


def _switched_on(context: Context, call: ast.Call) -> Iterator[Violation]:
    statement = context.tree.parent(call)
    message = "Anomaly detection is on for all that follows, and slows every operation."
    if isinstance(statement, ast.Expr):
        yield Violation(call, message, edits=(RemoveStatement(Span.of(statement)),))
    elif isinstance(statement, ast.withitem):
        around = context.tree.parent(statement)
        alone = isinstance(around, ast.With) and len(around.items) == 1
        edits = (Unwrap(Span.of(around)),) if alone and isinstance(around, ast.With) else ()
        yield Violation(call, "Anomaly detection slows every operation of what runs in this block.", edits=edits)


def _always(context: Context, node: ast.AST) -> bool:
    """Whether it runs unconditionally, except for its function's call and the script's main guard."""
    child = node
    for above in context.tree.ancestors(node):
        if isinstance(above, ast.If) and not _is_main_guard(above) and child is not above.test:
            return False
        if isinstance(above, _CONDITIONS) and not isinstance(above, ast.If):
            return False
        child = above
    return True


def _is_main_guard(statement: ast.If) -> bool:
    names = [it.id for it in ast.walk(statement.test) if isinstance(it, ast.Name)]
    return names == ["__name__"]


bad = {
    "for the whole run": """
        import torch

        torch.autograd.set_detect_anomaly(True)
        for batch in loader:
            model(batch).mean().backward()
        """,
    "a with, and a name of its own": """
        from torch import autograd

        def train(model, loader):
            with autograd.detect_anomaly():
                for batch in loader:
                    model(batch).mean().backward()
        """,
    "in the main guard, by keyword": """
        import torch

        if __name__ == "__main__":
            torch.autograd.set_detect_anomaly(mode=True)
            train()
        """,
    "Lightning's trainer": """
        import lightning as L

        trainer = L.Trainer(max_epochs=3, detect_anomaly=True, precision="bf16-mixed")
        """,
}
fixed = {
    "for the whole run": """
        import torch

        for batch in loader:
            model(batch).mean().backward()
        """,
    "a with, and a name of its own": """
        from torch import autograd

        def train(model, loader):
            for batch in loader:
                model(batch).mean().backward()
        """,
    "Lightning's trainer": """
        import lightning as L

        trainer = L.Trainer(max_epochs=3, precision="bf16-mixed")
        """,
}
good = {
    "by a flag": """
        import torch

        if args.debug:
            torch.autograd.set_detect_anomaly(True)
        """,
    "by an argument": """
        import torch

        torch.autograd.set_detect_anomaly(args.detect_anomaly)
        """,
    "switched off": """
        import torch

        torch.autograd.set_detect_anomaly(False)
        """,
    "on for a part, and off again": """
        import torch

        def look_for_nan(model, batch):
            torch.autograd.set_detect_anomaly(True)
            model(batch).mean().backward()
            torch.autograd.set_detect_anomaly(False)
        """,
    "for the stacks alone, as compilers do": """
        import torch

        with torch.autograd.detect_anomaly(check_nan=False):
            model(batch).mean().backward()
        """,
    "a function of that name": """
        import torch
        from debugging import detect_anomaly

        with detect_anomaly():
            model(batch).mean().backward()
        """,
}
