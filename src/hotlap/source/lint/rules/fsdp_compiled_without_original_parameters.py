"""A model is sharded by FSDP and compiled, but its parameters are flattened.

## What it does
Finds `FullyShardedDataParallel(...)` without `use_orig_params=True` where the same model goes through `torch.compile`,
before or after it is sharded. It is silent where the argument cannot be seen, and where nothing in the file compiles
that model.

## Why it is slow
With `use_orig_params=False`, the default, FSDP replaces the model's parameters by flat ones. torch.compile does not
trace modules that FSDP manages in this way: it stops at each of them, and what was to be compiled runs eagerly.

## Example
    model = FullyShardedDataParallel(model)
    model = torch.compile(model)

## Use instead
    model = FullyShardedDataParallel(model, use_orig_params=True)
    model = torch.compile(model)

Its successor, `torch.distributed.fsdp.fully_shard`, always keeps the original parameters.

## Fix safety
Unsafe: `use_orig_params=True` is set. Training produces the same results, but the names of the parameters change, and
with them what an optimizer's groups and saved states go by.

## References
- https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Code, SetKeyword, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context

code = "HL702"
title = "A model is sharded by FSDP and compiled, but its parameters are flattened"
fix_safety: FixSafety = "unsafe"

_FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
_POSITION = 13


def check(context: Context) -> Iterator[Violation]:
    """Each sharding with flat parameters of a model that is compiled as well."""
    for call in context.calls(_FSDP):
        given = context.argument(call, "use_orig_params", _POSITION)
        flat = given.absent or (given.given and context.constant(given.value) is False)
        compiled = _compiled(context, call) if flat and given.through is None else None
        if compiled is not None:
            yield Violation(
                call,
                "torch.compile leaves out what FSDP manages without `use_orig_params=True`: it runs eagerly.",
                (Related(compiled, "the model is compiled here"),),
                (SetKeyword(Span.of(call), "use_orig_params", Code("True"), _POSITION),),
            )


def _compiled(context: Context, sharded: ast.Call) -> ast.Call | None:
    """Where the sharded model, or the one that is put into it, is compiled."""
    inside = context.origins(sharded.args[0]) if sharded.args else ()
    for call in context.calls("torch.compile"):
        if call in inside or (call.args and sharded in context.origins(call.args[0])):
            return call
    for call, function in context.methods("compile"):
        if sharded in context.origins(function.value):
            return call
    return None


bad = {
    "compiled after it is sharded": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        model = FSDP(model, device_id=rank)
        model = torch.compile(model)
        """,
    "compiled before": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(torch.compile(Net()), use_orig_params=False)
        """,
    "in place, through a function": """
        import torch
        from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as FSDP

        def sharded(model):
            return FSDP(model)

        model = sharded(Net())
        model.compile()
        """,
}
fixed = {
    "compiled after it is sharded": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        model = FSDP(model, device_id=rank, use_orig_params=True)
        model = torch.compile(model)
        """,
    "compiled before": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(torch.compile(Net()), use_orig_params=True)
        """,
}
good = {
    "original parameters": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        model = torch.compile(FSDP(model, use_orig_params=True))
        """,
    "not compiled": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        model = FSDP(model)
        """,
    "another model is compiled": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        student = FSDP(Student())
        teacher = torch.compile(Teacher())
        """,
    "arguments that cannot be seen": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        def build(model, **settings):
            return torch.compile(FSDP(model, **settings))
        """,
    "a choice of the user": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        model = torch.compile(FSDP(model, use_orig_params=args.compile))
        """,
}
