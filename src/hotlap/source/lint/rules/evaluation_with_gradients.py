"""Evaluation records what a backward pass would need.

## What it does
Finds loops that evaluate (over `val_loader` and the like, in a function such as `evaluate`, or after `model.eval()`)
and call a model outside of `torch.no_grad()` and `torch.inference_mode()`. It is silent where gradients are used in the
loop, switched off in the callers, or anywhere in the file by `set_grad_enabled` or `requires_grad`; where an unknown
`with` is around; and in methods that Lightning or a Trainer calls, which see to it themselves.

## Why it is slow
`model.eval()` changes dropout and normalisation, not the recording of gradients. Without `no_grad` every layer keeps
its inputs until the outputs are dropped, so evaluation takes about the memory of a training step, where it could take
one layer's at a time, and what is spent on recording is never used. A sum of losses over the loop keeps all of it.

## Example
    model.eval()
    for images, labels in val_loader:
        total += criterion(model(images), labels).item()

## Use instead
    model.eval()
    with torch.inference_mode():
        for images, labels in val_loader:
            total += criterion(model(images), labels).item()

## Fix safety
Unsafe: the loop is put into `with torch.no_grad():`. What it computes is the same; a backward pass through its results
in another file would fail.

## References
- https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Code, Span, WrapStatements
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.evaluation import EvaluationLoop
from hotlap.source.lint.model.tree import word

code = "HL352"
title = "Evaluation records what a backward pass would need"
fix_safety: FixSafety = "unsafe"

# Context managers that do not switch gradients off.
_HARMLESS = frozenset({"autocast", "profile", "record_function", "device", "tqdm", "open", "stream", "Timer", "timer"})


def check(context: Context) -> Iterator[Violation]:
    """Each evaluation loop that certainly records gradients."""
    if not any(True for _ in context.methods("eval", "train", "parameters", "backward")):
        return
    for loop in context.evaluation.loops:
        if not _may_be_off(context, loop) and not _is_off_everywhere(context):
            at = Span.of(loop.node)
            model = context.tree.source(loop.call.func)
            yield Violation(
                loop.call,
                f"`{model}` is evaluated with gradients: every layer's inputs are kept for a backward pass.",
                edits=(WrapStatements(at, at, Code("torch.no_grad()", ("torch.no_grad",))),),
            )


def _may_be_off(context: Context, loop: EvaluationLoop) -> bool:
    """Whether gradients are, or may be, off in the loop: by what is around it, or around the calls that lead to it."""
    if _may_be_off_at(context, loop.call):
        return True
    functions, complete = context.evaluation.leading_to(loop.function)
    switched = any(context.tree.function(it) in functions - {None} for it in context.evaluation.mode_switches)
    if not complete and not switched:
        return True
    return any(
        _may_be_off_at(context, call) for it in functions if it is not None for call in context.call_graph.callers(it)
    )


def _may_be_off_at(context: Context, node: ast.AST) -> bool:
    if context.gradients_off(node):
        return True
    for entered in context.withs(node):
        what = context.value(entered)
        function = what.func if isinstance(what, ast.Call) else what
        last = word(function)
        known = (context.qualified_name(function) or "").rpartition(".")[2]
        if last not in _HARMLESS and known not in _HARMLESS:
            return True
    return any(_has_unknown_decorator(context, it) for it in context.tree.ancestors(node))


def _has_unknown_decorator(context: Context, node: ast.AST) -> bool:
    """Whether a function's decorator may switch gradients off; those of Python itself and of classes do not."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    plain = [it.func if isinstance(it, ast.Call) else it for it in node.decorator_list]
    names = [context.qualified_name(it) or "" for it in plain]
    return not all(it.startswith(("builtins.", "functools.", "typing.", "torch.compile")) for it in names)


def _is_off_everywhere(context: Context) -> bool:
    """Whether the file switches gradients off once and for all, for the process or for parameters."""
    if any(True for _ in context.calls("torch.set_grad_enabled")):
        return True
    return any(it.attr in ("requires_grad_", "requires_grad") for it in context.tree.of(ast.Attribute))


bad = {
    "after eval()": """
        import torch

        def evaluate(model, loader, criterion):
            model.eval()
            total = 0.0
            for images, labels in loader:
                total += criterion(model(images), labels).item()
            return total / len(loader)
        """,
    "over a loader that says so, between two epochs": """
        import torch
        from torch import nn

        model = nn.Linear(10, 2)
        for epoch in range(10):
            for images, labels in train_loader:
                criterion(model(images), labels).backward()
                optimizer.step()
            correct = 0
            for images, labels in val_loader:
                correct += (model(images).argmax(1) == labels).sum()
            print(epoch, correct)
        """,
    "as an attribute, under autocast": """
        import torch

        class Runner:
            def predict(self, batches):
                self.model.eval()
                outputs = []
                with torch.autocast("cuda"):
                    for batch in batches:
                        outputs.append(self.model(batch).cpu())
                return outputs
        """,
}
fixed = {
    "after eval()": """
        import torch

        def evaluate(model, loader, criterion):
            model.eval()
            total = 0.0
            with torch.no_grad():
                for images, labels in loader:
                    total += criterion(model(images), labels).item()
            return total / len(loader)
        """,
}
good = {
    "in a with": """
        import torch

        def evaluate(model, loader):
            model.eval()
            with torch.inference_mode():
                for batch in loader:
                    total += model(batch).sum()
        """,
    "by a decorator": """
        import torch

        @torch.no_grad()
        def evaluate(model, val_loader):
            model.eval()
            for batch in val_loader:
                total += model(batch).sum()
        """,
    "where it is called": """
        import torch

        def evaluate(model, val_loader):
            model.eval()
            for batch in val_loader:
                total += model(batch).sum()

        def main():
            with torch.no_grad():
                evaluate(model, loader)
        """,
    "in an unknown with": """
        import torch
        from helpers import evaluating

        def evaluate(model, val_loader):
            with evaluating(model):
                for batch in val_loader:
                    total += model(batch).sum()
        """,
    "gradients of the inputs are what is asked for": """
        import torch

        def evaluate_attack(model, test_loader):
            model.eval()
            for images, labels in test_loader:
                images.requires_grad_(True)
                criterion(model(images), labels).backward()
                attacked = images + 0.1 * images.grad.sign()
                correct += (model(attacked).argmax(1) == labels).sum()
        """,
    "so they are in a function of another file": """
        import torch

        def test(self, model, test_loader):
            model.eval()
            for images, labels in test_loader:
                correct += (model(images).argmax(1) == labels).sum()
                robust += (model(self.attack(images, labels)).argmax(1) == labels).sum()
        """,
    "training": """
        import torch

        def train(model, loader):
            model.train()
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
        """,
    "nothing requires gradients": """
        import torch

        def evaluate(model, val_loader):
            model.eval()
            model.requires_grad_(False)
            for batch in val_loader:
                total += model(batch).sum()
        """,
    "each block of a model": """
        import torch

        class Tower(torch.nn.Module):
            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                return x
        """,
    "unit tests": """
        import torch

        def test_shapes():
            model = torch.nn.Linear(10, 2)
            for size in (1, 2, 4):
                assert model(torch.zeros(size, 10)).shape == (size, 2)
        """,
}
