"""Activation checkpointing does not say which of its two variants is meant.

## What it does
Finds `torch.utils.checkpoint.checkpoint` and `checkpoint_sequential` without `use_reentrant`. It is silent where the
arguments come from a dictionary that cannot be seen.

## Why it is slow
Without `use_reentrant` the old, reentrant variant runs, and torch warns that a later version will raise an exception.
The reentrant variant always recomputes the whole function in backward; the other stops as soon as it has what backward
needs. It also gives no gradients at all to a checkpointed part none of whose inputs requires them, such as a first
layer whose input is the batch, and it takes no keyword arguments for the function.

## Example
    for block in self.blocks:
        x = checkpoint(block, x)

## Use instead
    for block in self.blocks:
        x = checkpoint(block, x, use_reentrant=False)

## Fix safety
Unsafe: `use_reentrant=False` is added. Gradients are the same where the reentrant variant gave any; a part that had
none for the reason above gets them.

## References
- https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.source.edits.kinds import Code, SetKeyword, Span
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context

code = "HL551"
title = "Activation checkpointing does not say which of its two variants is meant"
fix_safety: FixSafety = "unsafe"

# The parameter's position; `checkpoint` itself takes it by name only, since it hands its positions to the function.
_FUNCTIONS = {"torch.utils.checkpoint.checkpoint": None, "torch.utils.checkpoint.checkpoint_sequential": 3}


def check(context: Context) -> Iterator[Violation]:
    """Each call that certainly leaves it out."""
    for name, position in _FUNCTIONS.items():
        for call in context.calls(name):
            # A call without arguments is not a checkpoint.
            if call.args and context.argument(call, "use_reentrant", position).absent:
                yield Violation(
                    call,
                    "Without `use_reentrant` the old variant runs: all is recomputed, and torch announces an error.",
                    edits=(SetKeyword(Span.of(call), "use_reentrant", Code("False"), position),),
                )


bad = {
    "each block of a model": """
        import torch
        from torch.utils.checkpoint import checkpoint

        class Tower(torch.nn.Module):
            def forward(self, x):
                for block in self.blocks:
                    x = checkpoint(block, x)
                return x
        """,
    "by its full name, with several inputs": """
        import torch
        import torch.utils.checkpoint

        def forward(self, hidden, mask):
            return torch.utils.checkpoint.checkpoint(
                self.layer,
                hidden,
                mask,
            )
        """,
    "a sequence, under another name": """
        from torch.utils import checkpoint as cp

        def forward(self, x):
            return cp.checkpoint_sequential(self.layers, 4, x)
        """,
    "with unpacked inputs": """
        from torch.utils.checkpoint import checkpoint

        def run(block, *inputs):
            return checkpoint(block, *inputs)
        """,
}
fixed = {
    "each block of a model": """
        import torch
        from torch.utils.checkpoint import checkpoint

        class Tower(torch.nn.Module):
            def forward(self, x):
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=False)
                return x
        """,
    "by its full name, with several inputs": """
        import torch
        import torch.utils.checkpoint

        def forward(self, hidden, mask):
            return torch.utils.checkpoint.checkpoint(
                self.layer,
                hidden,
                mask,
                use_reentrant=False,
            )
        """,
    "a sequence, under another name": """
        from torch.utils import checkpoint as cp

        def forward(self, x):
            return cp.checkpoint_sequential(self.layers, 4, x, use_reentrant=False)
        """,
    "with unpacked inputs": """
        from torch.utils.checkpoint import checkpoint

        def run(block, *inputs):
            return checkpoint(block, *inputs, use_reentrant=False)
        """,
}
good = {
    "the newer variant": """
        from torch.utils.checkpoint import checkpoint

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=False)
        """,
    "the old one, on purpose": """
        from torch.utils.checkpoint import checkpoint

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=True)
        """,
    "by position": """
        from torch.utils.checkpoint import checkpoint_sequential

        def forward(self, x):
            return checkpoint_sequential(self.layers, 4, x, False)
        """,
    "in a dictionary of arguments": """
        from torch.utils.checkpoint import checkpoint

        arguments = {"use_reentrant": False}

        def forward(self, x):
            return checkpoint(self.block, x, **arguments)
        """,
    "arguments that cannot be seen": """
        from torch.utils.checkpoint import checkpoint

        def forward(self, x, **arguments):
            return checkpoint(self.block, x, **arguments)
        """,
    "a checkpoint of another kind": """
        import torch
        from library import checkpoint

        checkpoint(model, path)
        """,
}
