"""Deterministic algorithms are switched on for every run.

## What it does
Finds `torch.use_deterministic_algorithms(True)`, `torch.set_deterministic_debug_mode("error")` (and their like) and
`torch.backends.cudnn.deterministic = True` where nothing decides about them: no `if`, and no function that is called
after determinism. A hint: whether to pay is for a person to decide. `cudnn.benchmark = False` beside them is named too;
alone it is not reported, since it is the default, and neither are flags of cuDNN in a file whose models have no layers
that it computes.

## Why it is slow
The fastest algorithm for an operation is often one whose result depends on the order in which threads add. With these
flags torch takes a slower one, or raises an error where there is none, and with `cudnn.benchmark = False` it does not
look for the fastest convolution for the shapes at hand.

## Example
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False

## Use instead
    torch.manual_seed(arguments.seed)
    if arguments.deterministic:
        torch.use_deterministic_algorithms(True)
    else:
        torch.backends.cudnn.benchmark = True

## Fix safety
None: runs that must repeat to the last bit need the flags.

## References
- https://docs.pytorch.org/docs/stable/notes/randomness.html
- https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.check import position
from hotlap.source.lint.context import Context

code = "HL651"
title = "Deterministic algorithms are switched on for every run"
fix_safety: FixSafety = "none"

_WANTED = re.compile(r"determin|reprod|repeatab|bitwise|debug", re.IGNORECASE)
# What cuDNN has algorithms for: convolutions, recurrent layers, the CTC loss.
_OF_CUDNN = re.compile(r"conv|rnn|lstm|gru|ctc|resnet|unet", re.IGNORECASE)
_OFF = (False, 0, "default", None)


def check(context: Context) -> Iterator[Violation]:
    """The first flag of each block; others in the same block belong to it."""
    found: dict[tuple[ast.AST, str], list[ast.stmt]] = {}
    for statement in _switches(context):
        if not _is_decided(context, statement):
            found.setdefault(context.tree.block(statement), []).append(statement)
    for block, statements in found.items():
        first, *others = sorted(statements, key=position)
        others += [it for it in _benchmark_off(context) if context.tree.block(it) == block]
        yield Violation(
            first,
            "Every run pays for deterministic algorithms, wanted or not; put them behind an option.",
            tuple(Related(it, "this belongs to it") for it in others),
        )


def _switches(context: Context) -> Iterator[ast.stmt]:
    for call in context.calls("torch.use_deterministic_algorithms", "torch.set_deterministic_debug_mode"):
        given = context.constant(call.args[0]) if call.args else ...
        if given is not ... and given not in _OFF and isinstance(context.tree.parent(call), ast.Expr):
            yield context.tree.statement(call)
    for statement, value in _assigned(context, "torch.backends.cudnn.deterministic"):
        if value is True and _may_use_cudnn(context):
            yield statement


def _may_use_cudnn(context: Context) -> bool:
    """Whether the models may have layers that cuDNN computes: where the file defines them all it would say so."""
    defined = any(True for _ in context.classes_of("torch.nn.Module"))
    return not defined or bool(_OF_CUDNN.search(context.tree.text))


def _benchmark_off(context: Context) -> Iterator[ast.stmt]:
    return (statement for statement, value in _assigned(context, "torch.backends.cudnn.benchmark") if value is False)


def _assigned(context: Context, name: str) -> Iterator[tuple[ast.stmt, object]]:
    """What is assigned to torch's flag of this name: plain values, not what a variable holds."""
    for statement in context.tree.of(ast.Assign):
        if any(isinstance(it, ast.Attribute) and context.qualified_name(it) == name for it in statement.targets):
            yield statement, statement.value.value if isinstance(statement.value, ast.Constant) else ...


def _is_decided(context: Context, statement: ast.stmt) -> bool:
    """Whether something decides about it: a test around it, or a function or class that is called after it."""
    for above in context.tree.ancestors(statement):
        match above:
            case ast.If() | ast.Try() | ast.Match() | ast.With():
                return True
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if _WANTED.search(name):
                return True
            case ast.FunctionDef(args=arguments) if any(_WANTED.search(it.arg) for it in _parameters(arguments)):
                return True
    return False


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


bad = {
    "at the top of a script": """
        import torch

        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True)
        """,
    "the flags of cuDNN": """
        import torch
        import torch.backends.cudnn as cudnn

        def main():
            torch.manual_seed(0)
            cudnn.deterministic = True
            cudnn.benchmark = False
            train()
        """,
    "in a function that everybody calls": """
        import random
        import torch

        def set_seed(seed):
            random.seed(seed)
            torch.manual_seed(seed)
            torch.backends.cudnn.deterministic = True
        """,
    "as a debugging mode": """
        import torch

        torch.set_deterministic_debug_mode("warn")
        """,
}
good = {
    "no layer that cuDNN computes": """
        import torch
        from torch import nn

        torch.backends.cudnn.deterministic = True

        class Policy(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))

            def forward(self, x):
                return self.layers(x)
        """,
    "behind an option": """
        import torch

        if args.deterministic:
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        """,
    "where a seed was asked for": """
        import torch

        def main(seed):
            if seed is not None:
                torch.manual_seed(seed)
                torch.backends.cudnn.deterministic = True
        """,
    "in a function that is called after it": """
        import torch

        def enable_full_determinism(seed):
            torch.manual_seed(seed)
            torch.use_deterministic_algorithms(True)
        """,
    "as its parameter says": """
        import torch

        def set_seed(seed, deterministic=False):
            torch.manual_seed(seed)
            torch.use_deterministic_algorithms(deterministic)
            torch.backends.cudnn.benchmark = not deterministic
        """,
    "switched off": """
        import torch

        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.deterministic = False
        torch.backends.cudnn.benchmark = True
        """,
    "the default, said aloud": """
        import torch

        torch.backends.cudnn.benchmark = False
        """,
}
