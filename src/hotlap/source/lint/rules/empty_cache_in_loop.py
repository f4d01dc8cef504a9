"""The allocator's cache is emptied in every training step.

## What it does
Finds `torch.cuda.empty_cache()` (and its like of other accelerators) where it runs in every step of a training loop,
in the loop itself or in a function that the loop calls. Behind an interval, such as `if step % 1000 == 0`, once per
epoch, or in a function that reads the allocator's peaks, it is not reported.

## Why it is slow
The allocator keeps freed memory so that the next step gets it at once. `empty_cache` gives it back to the driver, which
waits for the device, and the next step has to ask the driver for the same memory again. It frees nothing that the
program still uses, so it prevents no out-of-memory error that the allocator would not have prevented by itself: before
it fails, the allocator empties its cache and tries again.

## Example
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()

## Use instead
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()

Where memory is fragmented, set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; between phases of very different
size, such as training and evaluation, one call per phase is fine.

## Fix safety
Unsafe: the call is taken out. What is computed stays the same, but another process that shares the device may have
relied on the memory that was given back.

## References
- https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
- https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import RemoveStatement, Span
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.torch_names import MEMORY_COUNTERS

code = "HL502"
title = "The allocator's cache is emptied in every training step"
fix_safety: FixSafety = "unsafe"
across_files = True

_FUNCTIONS = (
    "torch.cuda.empty_cache",
    "torch.cuda.memory.empty_cache",
    "torch.mps.empty_cache",
    "torch.xpu.empty_cache",
    "torch.accelerator.empty_cache",
)


def check(context: Context) -> Iterator[Violation]:
    """Each such call that runs in every step."""
    for call in context.calls(*_FUNCTIONS):
        statement = context.tree.parent(call)
        if not isinstance(statement, ast.Expr) or _is_for_a_measurement(context, call):
            continue
        if context.place_in_every_step(call) is not None:
            yield Violation(
                call,
                "`empty_cache` runs in every training step: the next step allocates it all again.",
                edits=(RemoveStatement(Span.of(statement)),),
            )


def _is_for_a_measurement(context: Context, call: ast.Call) -> bool:
    """Whether the function around the call reads peak memory, which cached memory would distort."""
    around = context.tree.function(call)
    nodes = ast.walk(around) if around is not None else ()
    return any(isinstance(it, ast.Call) and context.qualified_name(it.func) in MEMORY_COUNTERS for it in nodes)


bad = {
    "at the end of every step": """
        import torch

        for images, labels in loader:
            loss = criterion(model(images.cuda()), labels.cuda())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.empty_cache()
        """,
    "under another name, after a guard that every step passes": """
        from torch.cuda import empty_cache as release

        def train(model, loader, optimizer, rank):
            for batch in loader:
                loss = model(batch).mean()
                loss.backward()
                optimizer.step()
                if rank == 0:
                    release()
        """,
    "in a function that the loop calls": """
        import torch

        def step(model, optimizer, batch):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            torch.cuda.empty_cache()

        def train(model, optimizer, loader):
            for batch in loader:
                step(model, optimizer, batch)
        """,
}
fixed = {
    "at the end of every step": """
        import torch

        for images, labels in loader:
            loss = criterion(model(images.cuda()), labels.cuda())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "under another name, after a guard that every step passes": """
        from torch.cuda import empty_cache as release

        def train(model, loader, optimizer, rank):
            for batch in loader:
                loss = model(batch).mean()
                loss.backward()
                optimizer.step()
                if rank == 0:
                    pass
        """,
}
good = {
    "now and then": """
        import torch

        for step, batch in enumerate(loader):
            model(batch).mean().backward()
            optimizer.step()
            if step % 1000 == 0:
                torch.cuda.empty_cache()
        """,
    "once per epoch": """
        import torch

        for epoch in range(10):
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
            torch.cuda.empty_cache()
        """,
    "where memory ran out": """
        import torch

        for batch in loader:
            try:
                model(batch).mean().backward()
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
                continue
            optimizer.step()
        """,
    "to measure memory": """
        import torch

        def peak(model, optimizer, batch):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            model(batch).mean().backward()
            optimizer.step()
            return torch.cuda.max_memory_allocated()

        for batch in loader:
            peaks.append(peak(model, optimizer, batch))
        """,
    "in an evaluation loop": """
        import torch

        with torch.no_grad():
            for batch in loader:
                scores.append(model(batch))
                torch.cuda.empty_cache()
        """,
}
