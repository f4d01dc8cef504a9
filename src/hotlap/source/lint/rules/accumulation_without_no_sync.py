"""Gradients are summed over processes in every step, but used only in some.

## What it does
Finds a training loop that calls a model in `DistributedDataParallel`, calls `backward` in every pass and the
optimizer's step only in every n-th, where nothing in the file uses `no_sync` or sets `require_backward_grad_sync`.

## Why it is slow
`DistributedDataParallel` sums the gradients of all processes in each backward pass. While gradients accumulate, only
the last pass before the optimizer's step needs that; the others send as much as the model has parameters for nothing.

## Example
    for step, batch in enumerate(loader):
        loss = model(batch) / 4
        loss.backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()

## Use instead
    for step, batch in enumerate(loader):
        last = step % 4 == 3
        with contextlib.nullcontext() if last else model.no_sync():
            loss = model(batch) / 4
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()

The forward pass belongs into the `with` too: that is where the model decides whether to sum.

## Fix safety
None: forward and backward have to move into one `with` together.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.training import TrainingLoop
from hotlap.source.lint.model.tree import LOOPS

code = "HL703"
title = "Gradients are summed over processes in every step, but used only in some"
fix_safety: FixSafety = "none"
measured = (
    "Without it a script made to show it trains 1.85x as fast (95 % interval 1.77 to 1.93), on 2 cores, 24 "
    "GiB, no accelerator (docs/benchmarks/lint-impact.md)."
)

_DDP = "torch.nn.parallel.DistributedDataParallel"
_ANSWERS = frozenset({"no_sync", "require_backward_grad_sync", "set_requires_gradient_sync"})


def check(context: Context) -> Iterator[Violation]:
    """Each backward pass of such a loop."""
    if not any(True for _ in context.calls(_DDP)):
        return
    if any(it.attr in _ANSWERS for it in context.tree.of(ast.Attribute)):
        return
    for loop in context.training_loops:
        step = _rare_step(context, loop)
        if step is None or not _calls_wrapped_model(context, loop):
            continue
        for call in context.training.backward_calls:
            place = context.hot_place(call)
            if place is not None and place.loop is loop and place.every_step and place.call is None:
                yield Violation(
                    call,
                    "Every backward pass sums gradients over all processes; those before the last need `no_sync`.",
                    (Related(step, "the gradients are used only here, not in every pass"),),
                )


def _rare_step(context: Context, loop: TrainingLoop) -> ast.AST | None:
    """A step of the optimizer that is behind an interval, where all of them are."""
    if not isinstance(loop.node, LOOPS):
        return None
    steps = [it for it in context.training.optimizer_steps if context.training.loop_of(it) is loop]
    rare = [it for it in steps if context.guards.frequency(it, loop.node) == "interval"]
    return rare[0] if rare and len(rare) == len(steps) else None


def _calls_wrapped_model(context: Context, loop: TrainingLoop) -> bool:
    """Whether what is called in the loop, in every pass, is a model in DistributedDataParallel."""
    for call in context.tree.of(ast.Call):
        if context.training.loop_of(call) is loop and isinstance(call.func, (ast.Name, ast.Attribute)):
            made_by = (context.qualified_name(it.func) for it in context.origins(call.func))
            if _DDP in made_by and context.guards.frequency(call, loop.node) == "every_step":
                return True
    return False


bad = {
    "every fourth step": """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        model = DDP(model, device_ids=[rank])
        for step, (images, labels) in enumerate(loader):
            loss = criterion(model(images), labels) / 4
            loss.backward()
            if (step + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        """,
    "in a function, with a scaler": """
        import torch

        def train(model, loader, optimizer, scaler, accumulate):
            for index, batch in enumerate(loader):
                loss = model(batch).mean() / accumulate
                scaler.scale(loss).backward()
                if (index + 1) % accumulate == 0 or index + 1 == len(loader):
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()

        def main():
            model = torch.nn.parallel.DistributedDataParallel(Net().cuda())
            train(model, loader, optimizer, scaler, 8)
        """,
    "wrapped where there are several processes": """
        import torch
        from torch.nn.parallel import DistributedDataParallel

        if world_size > 1:
            model = DistributedDataParallel(model)
        for step, batch in enumerate(loader):
            model(batch).mean().backward()
            if step % accumulation_steps != accumulation_steps - 1:
                continue
            optimizer.step()
            optimizer.zero_grad()
        """,
}
good = {
    "summed in the last pass only": """
        import contextlib
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        model = DDP(model)
        for step, batch in enumerate(loader):
            last = step % 4 == 3
            with contextlib.nullcontext() if last else model.no_sync():
                model(batch).mean().backward()
            if last:
                optimizer.step()
        """,
    "by the flag": """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        model = DDP(model)
        for step, batch in enumerate(loader):
            model.require_backward_grad_sync = step % 4 == 3
            model(batch).mean().backward()
            if step % 4 == 3:
                optimizer.step()
        """,
    "a step in every pass": """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        model = DDP(model)
        for step, batch in enumerate(loader):
            model(batch).mean().backward()
            optimizer.step()
            if step % 100 == 0:
                print(step)
        """,
    "accumulation without other processes": """
        import torch

        for step, batch in enumerate(loader):
            model(batch).mean().backward()
            if step % 4 == 3:
                optimizer.step()
        """,
    "two optimizers, one of which steps always": """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        model = DDP(model)
        for step, batch in enumerate(loader):
            model(batch).mean().backward()
            optimizer_of_heads.step()
            if step % 4 == 3:
                optimizer.step()
        """,
}
