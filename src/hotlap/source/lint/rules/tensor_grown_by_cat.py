"""A tensor is grown in a loop by concatenating to it.

## What it does
Finds `x = torch.cat([x, y])` (and `concat`, `vstack`, `hstack`) in a loop, where x was made before the loop and is read
nowhere else in it. A tensor that the loop goes on with, as when generating text, is not reported.

## Why it is slow
Every pass copies all that was gathered before into a new tensor, so the work grows with the square of the number of
passes, and for a moment both the old and the new tensor are held.

## Example
    outputs = torch.empty(0, 10)
    for batch in loader:
        outputs = torch.cat([outputs, model(batch)])

## Use instead
    outputs = []
    for batch in loader:
        outputs.append(model(batch))
    outputs = torch.cat(outputs)

Where the size is known, a tensor made once with `torch.empty` and filled slice by slice needs no second copy at all.

## Fix safety
None: the list has to be concatenated where the loop is over, and what reads the tensor decides where that is.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.cat.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.tree import Loop

code = "HL503"
title = "A tensor is grown in a loop by concatenating to it"
fix_safety: FixSafety = "none"
across_files = True
measured = (
    "Without it a script made to show it trains 4.57x as fast (95 % interval 4.13 to 5.06), on 2 cores, 24 "
    "GiB, no accelerator (docs/benchmarks/lint-impact.md)."
)

_FUNCTIONS = tuple(f"torch.{it}" for it in ("cat", "concat", "concatenate", "vstack", "hstack"))
_SIZES = ("shape", "size", "numel", "dim")


def check(context: Context) -> Iterator[Violation]:
    """Each such concatenation to a tensor that outlives the loop."""
    for call in context.calls(*_FUNCTIONS):
        pieces = context.argument(call, "tensors", 0).value
        statement = context.tree.parent(call)
        loop = next(context.loops(call), None)
        if loop is None or not isinstance(pieces, (ast.List, ast.Tuple)) or not isinstance(statement, ast.Assign):
            continue
        match statement.targets:
            case [ast.Name() as grown] if any(isinstance(it, ast.Name) and it.id == grown.id for it in pieces.elts):
                if _gathers(context, grown, statement, loop):
                    yield Violation(
                        call,
                        f"Every pass copies all of `{grown.id}` again; append to a list and concatenate once, behind "
                        "the loop.",
                    )


def _gathers(context: Context, grown: ast.Name, statement: ast.Assign, loop: Loop) -> bool:
    """Whether the tensor comes from before the loop, and the loop does nothing with it but add to it."""
    home = context.names.home(grown)
    if home is None:
        return False
    others = [it for it in context.names.bindings_in(home, grown.id) if it.node is not grown]
    if not others or not any(not context.tree.within(it.node, loop) for it in others):
        return False
    if any(context.tree.within(it.node, loop) and not _begins(context, it.node) for it in others):
        return False
    uses = [it for it in context.tree.of(ast.Name) if it.id == grown.id and isinstance(it.ctx, ast.Load)]
    elsewhere = [it for it in uses if context.tree.within(it, loop) and not context.tree.within(it, statement)]
    return all(_reads_only_size(context, it) for it in elsewhere)


def _begins(context: Context, node: ast.AST) -> bool:
    """The first piece, taken over unchanged: ``if x is None: x = y``."""
    statement = context.tree.statement(node)
    above = context.tree.parent(statement)
    return isinstance(above, ast.If) and isinstance(node, ast.Name) and _is_about(above.test, node.id)


def _is_about(test: ast.expr, name: str) -> bool:
    return any(isinstance(it, ast.Name) and it.id == name for it in ast.walk(test))


def _reads_only_size(context: Context, use: ast.Name) -> bool:
    """A use that only reads the size, or whether the tensor is empty."""
    above = context.tree.parent(use)
    if isinstance(above, ast.Attribute) and above.attr in _SIZES:
        return True
    if isinstance(above, ast.Compare):
        return isinstance(above.ops[0], (ast.Is, ast.IsNot))
    return isinstance(above, ast.Call) and context.qualified_name(above.func) == "builtins.len"


bad = {
    "predictions": """
        import torch

        outputs = torch.empty(0, 10)
        with torch.no_grad():
            for batch in loader:
                outputs = torch.cat([outputs, model(batch)])
        """,
    "along a dimension, in a tuple, under another name": """
        import torch as th

        def gather(model, loader):
            features = th.tensor([])
            for images, _ in loader:
                found = model(images)
                features = th.cat((features, found.cpu()), dim=0)
            return features
        """,
    "beginning with nothing": """
        from torch import cat

        scores = None
        for batch in loader:
            if scores is None:
                scores = model(batch)
            else:
                scores = cat([scores, model(batch)], 0)
        """,
}
good = {
    "a list": """
        import torch

        outputs = []
        for batch in loader:
            outputs.append(model(batch))
        outputs = torch.cat(outputs)
        """,
    "generated text, which the loop reads": """
        import torch

        def generate(model, tokens, count):
            for _ in range(count):
                following = model(tokens)[:, -1].argmax(-1, keepdim=True)
                tokens = torch.cat([tokens, following], dim=1)
            return tokens
        """,
    "begun again in every pass": """
        import torch

        for images, extra in loader:
            both = images.flatten(1)
            both = torch.cat([both, extra], dim=1)
            model(both)
        """,
    "other tensors": """
        import torch

        for a, b in loader:
            joined = torch.cat([a, b])
        """,
    "a window": """
        import torch

        window = torch.zeros(16)
        for value in stream:
            window = torch.cat([window[1:], value])
        """,
    "two pieces, once": """
        import torch

        tokens = torch.tensor([1])
        tokens = torch.cat([tokens, torch.tensor([2])])
        """,
}
