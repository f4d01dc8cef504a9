"""Python loops over the elements of a tensor.

## What it does
Finds a loop over a tensor, or over `range(len(tensor))` and its like, whose passes compute with one element each:
`tensor[i] * 2`, `total += tensor[i]`, `if x > 0`, `x.item()`. It is silent where a pass needs the result of the one
before, other than for a sum, and where an element is an index or is handed on to a function.

## Why it is slow
Each operation on one element costs as much Python and as many launches as the same operation on the whole tensor, and
a comparison or `.item()` waits for the device besides.

## Example
    total = 0
    for i in range(len(errors)):
        total += errors[i] ** 2

## Use instead
    total = (errors ** 2).sum()

## Fix safety
None: what the whole loop stands for is for a person to write.

## References
- https://docs.pytorch.org/docs/stable/notes/broadcasting.html
- https://docs.pytorch.org/docs/stable/torch.html#pointwise-ops
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context

code = "HL204"
title = "Python loops over the elements of a tensor"
fix_safety: FixSafety = "none"
across_files = True
measured = (
    "Without it a script made to show it trains 1.77x as fast (95 % interval 1.75 to 1.80), on 2 cores, 24 "
    "GiB, no accelerator (docs/benchmarks/lint-impact.md)."
)

_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.If, ast.Pass, ast.Continue)
_READS = frozenset({"item", "abs", "exp", "log", "sqrt", "pow", "clamp", "square"})
_FUNCTIONS = frozenset(f"builtins.{it}" for it in ("abs", "float", "int", "min", "max", "round", "len"))


def check(context: Context) -> Iterator[Violation]:
    """Each loop whose passes do nothing but compute with one element of a tensor."""
    for loop in context.tree.of(ast.For):
        tensor, element = _over(context, loop)
        if tensor is None or not context.is_tensor(tensor) or _is_written_out(context, tensor):
            continue
        used = list(_elements(loop, element))
        only_computes = bool(used) and all(_computes(context, it) for it in used) and _is_arithmetic(context, loop)
        if only_computes and not _carries(context, loop):
            text = context.tree.source(tensor)
            yield Violation(
                loop.iter, f"This loop computes with `{text}` element by element; compute with all at once."
            )


def _over(context: Context, loop: ast.For) -> tuple[ast.expr | None, str]:
    """The tensor, and how an element of it is written: ``x`` for a loop over it, ``tensor[i]`` for one over indices."""
    target, over = loop.target, loop.iter
    if isinstance(over, ast.Call) and context.qualified_name(over.func) == "builtins.enumerate" and over.args:
        pair = target.elts if isinstance(target, ast.Tuple) and len(target.elts) == 2 else []
        if not pair:
            return None, ""
        target, over = pair[1], over.args[0]
    if not isinstance(target, ast.Name):
        return None, ""
    if context.is_tensor(over):
        return over, target.id
    if isinstance(over, ast.Call) and context.qualified_name(over.func) == "builtins.range" and len(over.args) == 1:
        tensor = _sized(context, over.args[0])
        if tensor is not None and context.is_tensor(tensor):
            return tensor, f"{ast.unparse(tensor)}[{target.id}]"
    return None, ""


def _sized(context: Context, size: ast.expr) -> ast.expr | None:
    """The tensor whose length this is: ``len(x)``, ``x.shape[0]``, ``x.size(0)``, ``x.numel()``."""
    match size:
        case ast.Call(args=[tensor]) if context.qualified_name(size.func) == "builtins.len":
            return tensor
        case ast.Subscript(value=ast.Attribute(value=tensor, attr="shape"), slice=ast.Constant(value=0)):
            return tensor
        case ast.Call(func=ast.Attribute(value=tensor, attr="size"), args=[ast.Constant(value=0)]):
            return tensor
        case ast.Call(func=ast.Attribute(value=tensor, attr="numel"), args=[]):
            return tensor
    return None


def _is_arithmetic(context: Context, loop: ast.For) -> bool:
    """Whether a pass only computes, compares, adds up, and stores or appends what it computed."""
    for statement in loop.body:
        for it in ast.walk(statement):
            if isinstance(it, ast.stmt) and not isinstance(it, _SIMPLE):
                return False
            if isinstance(it, ast.Call) and not _is_plain(context, it):
                return False
            if isinstance(it, (ast.List, ast.ListComp)):
                return False
    return True


def _is_plain(context: Context, call: ast.Call) -> bool:
    name = context.qualified_name(call.func)
    if name is not None:
        return name in _FUNCTIONS or name.startswith("math.") or name.removeprefix("torch.") in _READS
    return isinstance(call.func, ast.Attribute) and (call.func.attr in _READS or call.func.attr == "append")


def _elements(loop: ast.For, element: str) -> Iterator[ast.expr]:
    for statement in loop.body:
        for it in ast.walk(statement):
            if (
                isinstance(it, (ast.Name, ast.Subscript))
                and isinstance(it.ctx, ast.Load)
                and ast.unparse(it) == element
            ):
                yield it


def _computes(context: Context, element: ast.expr) -> bool:
    """Whether arithmetic, a comparison or a reading is done with an element, not with a part of it."""
    match context.tree.parent(element):
        case ast.BinOp() | ast.AugAssign():
            return True
        case ast.Compare(ops=operators):
            return not any(isinstance(it, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for it in operators)
        case ast.Attribute(attr=method):
            return method in _READS
    return False


def _carries(context: Context, loop: ast.For) -> bool:
    """Whether a pass reads what the one before has computed: a state, a sum, an element that was stored."""
    names = [it for statement in loop.body for it in ast.walk(statement) if isinstance(it, ast.Name)]
    stored = {it.id for it in names if _is_stored_into(context, it)}
    for it in names:
        if not isinstance(it.ctx, ast.Load) or _is_stored_into(context, it):
            continue
        if it.id in stored or any(_is_later(context, loop, binding.node, it) for binding in context.bindings(it)):
            return True
    return False


def _is_stored_into(context: Context, name: ast.Name) -> bool:
    """``out`` of ``out[i] = ...``."""
    above = context.tree.parent(name)
    return isinstance(above, ast.Subscript) and above.value is name and isinstance(above.ctx, ast.Store)


def _is_later(context: Context, loop: ast.For, bound: ast.AST, use: ast.Name) -> bool:
    """Whether the name is bound in the loop, but not further up in the same pass."""
    if (
        not isinstance(bound, ast.Name)
        or not context.tree.within(bound, loop)
        or context.tree.within(bound, loop.target)
    ):
        return False
    if isinstance(context.tree.parent(bound), ast.AugAssign):
        return True
    return context.tree.statement(bound) is context.tree.statement(use) or bound.lineno > use.lineno


def _is_written_out(context: Context, tensor: ast.expr) -> bool:
    """A handful of numbers written into the source, such as a list of learning rates."""
    made = context.value(tensor)
    name = context.qualified_name(made.func) if isinstance(made, ast.Call) else None
    return name in ("torch.linspace", "torch.logspace", "torch.arange", "torch.tensor", "torch.randperm")


bad = {
    "a sum of squares": """
        import torch

        def mean_square(prediction: torch.Tensor, target: torch.Tensor):
            errors = prediction - target
            total = 0
            for i in range(len(errors)):
                total += errors[i] ** 2
            return total / len(errors)
        """,
    "counting by comparison": """
        import torch
        import torch.nn as nn

        model = nn.Linear(8, 2)
        scores = model(torch.randn(32, 8)).argmax(1)
        correct = 0
        for score in scores:
            if score == 1:
                correct += 1
        """,
    "filling another tensor": """
        import torch
        import torch.nn.functional as F

        def clip(x):
            y = F.relu(x)
            out = torch.empty_like(y)
            for i in range(y.shape[0]):
                out[i] = y[i] * 2 - 1
            return out
        """,
    "reading each": """
        import torch

        def values(losses: torch.Tensor):
            found = []
            for loss in losses:
                found.append(loss.item() / 10)
            return found
        """,
}
good = {
    "all at once": """
        import torch

        def mean_square(prediction: torch.Tensor, target: torch.Tensor):
            return (prediction - target).square().mean()
        """,
    "a recurrence": """
        import torch

        def smoothed(values: torch.Tensor):
            state = torch.zeros(())
            for i in range(len(values)):
                state = 0.9 * state + 0.1 * values[i]
            return state
        """,
    "a recurrence that is kept": """
        import torch

        def cumulative(values: torch.Tensor):
            out = torch.zeros_like(values)
            for i in range(len(values)):
                out[i] = out[i - 1] * 0.9 + values[i]
            return out
        """,
    "time steps for a cell": """
        import torch

        def run(cell, x: torch.Tensor, state):
            for t in range(x.size(0)):
                state = cell(x[t], state)
            return state
        """,
    "a list of tensors": """
        import torch

        losses = [model(batch).mean() for batch in loader]
        total = 0
        for loss in losses:
            total += loss * 2
        """,
    "offsets into another tensor": """
        import torch

        def parts(sizes: torch.Tensor, joined: torch.Tensor):
            found, start = [], 0
            for size in sizes:
                found.append(joined[start : start + size])
                start += size
            return found
        """,
    "elements that choose": """
        import torch

        def painted(scores: torch.Tensor, masks):
            for i in range(scores.shape[0]):
                if scores[i] > 0.5:
                    paint(masks[i], scores[i])
        """,
    "images that are shown": """
        import torch

        def show(images: torch.Tensor):
            for image in images:
                plot(image)
        """,
    "a few settings": """
        import torch

        for rate in torch.linspace(0.1, 1.0, 10):
            print(rate * 2)
        """,
}
