"""Gradients are filled with zeros in every step rather than dropped.

## What it does
Finds `zero_grad(set_to_none=False)`, also `zero_grad(False)`. Plain `zero_grad()` is right: it has dropped gradients
since torch 2.0. The rule is silent in files that record CUDA graphs, where gradients must stay where they are, and in
scripts that make their optimizer and never name a device: those train on the processor.

## Why it is slow
Every gradient is written with zeros, and the backward pass then reads it to add to it. On an accelerator dropped
gradients cost nothing: its allocator keeps their memory, backward puts the new ones there, and until then it is free
for the forward pass. On a processor it can be the other way round: the memory of large gradients is fetched from the
system again in every step, which may take longer than the zeros.

## Example
    optimizer.zero_grad(set_to_none=False)

## Use instead
    optimizer.zero_grad()

## Fix safety
Unsafe: the argument is taken out. A parameter that gets no gradient in a step is then skipped by the optimizer rather
than updated with zero, which differs with weight decay or momentum; and code that reads `.grad` may find None.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
- https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotlap.source.edits.kinds import RemoveKeyword, Span
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context

code = "HL602"
title = "Gradients are filled with zeros in every step rather than dropped"
fix_safety: FixSafety = "unsafe"
measured = (
    "Without it a script made to show it trains 0.72x as fast (95 % interval 0.67 to 0.78), on 2 cores, 24 "
    "GiB, no accelerator (docs/benchmarks/lint-impact.md)."
)

_DEVICE = re.compile(r"cuda|device|accelerat|mps|xpu|hpu|npu|fabric|lightning|deepspeed", re.IGNORECASE)
_OPTIMIZER = re.compile(r"torch\.optim\.[A-Z]\w+$")
_GRAPHS = ("CUDAGraph", "make_graphed_callables", "torch.cuda.graph")


def check(context: Context) -> Iterator[Violation]:
    """Each ``zero_grad`` that keeps the gradients' memory."""
    if any(it in context.tree.text for it in _GRAPHS) or _trains_on_processor(context):
        return
    for call, receiver in context.updates.clears:
        asked = context.argument(call, "set_to_none", 0)
        if not asked.given or asked.through is not None or context.constant(asked.value) is not False:
            continue
        if _overrides(context, call):
            continue
        text = context.tree.source(receiver)
        yield Violation(
            call,
            f"`{text}.zero_grad` fills all gradients with zeros; without `set_to_none=False` it drops them.",
            edits=(RemoveKeyword(Span.of(call), "set_to_none", position=0),),
        )


def _trains_on_processor(context: Context) -> bool:
    """Whether the optimizer is made here, and the file names no other device."""
    if _DEVICE.search(context.tree.text):
        return False
    return any(_OPTIMIZER.match(context.qualified_name(it.func) or "") for it in context.tree.of(ast.Call))


def _overrides(context: Context, call: ast.Call) -> bool:
    """Whether it is in a ``zero_grad`` defined in the file, which is a deliberate choice."""
    function = context.tree.function(call)
    return function is not None and function.name == "zero_grad"


bad = {
    "by name": """
        import torch

        optimizer = torch.optim.AdamW(model.cuda().parameters())
        for batch in loader:
            optimizer.zero_grad(set_to_none=False)
            model(batch.cuda()).mean().backward()
            optimizer.step()
        """,
    "by position": """
        import torch

        def train(model, loader, optimizer):
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
                model.zero_grad(False)
        """,
    "a name for it": """
        import torch

        SET_TO_NONE = False
        for batch in loader:
            optimizer.zero_grad(set_to_none=SET_TO_NONE)
            model(batch).mean().backward()
            optimizer.step()
        """,
}
fixed = {
    "by name": """
        import torch

        optimizer = torch.optim.AdamW(model.cuda().parameters())
        for batch in loader:
            optimizer.zero_grad()
            model(batch.cuda()).mean().backward()
            optimizer.step()
        """,
    "by position": """
        import torch

        def train(model, loader, optimizer):
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
                model.zero_grad()
        """,
}
good = {
    "the default": """
        import torch

        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
        """,
    "on the processor": """
        import torch

        optimizer = torch.optim.AdamW(model.parameters())
        for batch in loader:
            optimizer.zero_grad(set_to_none=False)
            model(batch).mean().backward()
            optimizer.step()
        """,
    "said explicitly": """
        import torch

        for batch in loader:
            optimizer.zero_grad(set_to_none=True)
            model(batch).mean().backward()
            optimizer.step()
        """,
    "a graph needs the same memory": """
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            optimizer.zero_grad(set_to_none=False)
            model(batch).mean().backward()
            optimizer.step()
        """,
    "passed on": """
        import torch

        class Both(torch.optim.Optimizer):
            def zero_grad(self, set_to_none=False):
                self.first.zero_grad(set_to_none)
        """,
}
