"""Every training step waits until the device has done all its work.

## What it does
Finds `torch.cuda.synchronize()` (or that of another accelerator) where it runs in every step of a training loop, in the
loop itself or in a function that the loop calls. It is silent behind an interval (`if step % 100 == 0`), and where
the loop or function reads a clock or the allocator's counters, since a figure without it says nothing.

## Why it is slow
Python prepares the work of a step while the device still computes the one before. `synchronize` makes it wait until the
device has finished everything, so from then on the device waits for Python. Nothing needs it for correctness: reading
a value waits by itself, and work on one stream runs in order.

## Example
    for batch in loader:
        loss = model(batch.cuda()).mean()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()

## Use instead
    for batch in loader:
        loss = model(batch.cuda()).mean()
        loss.backward()
        optimizer.step()

## Fix safety
Unsafe: the call is taken out. What is computed stays the same, unless another library uses the device's memory on a
stream of its own.

## References
- https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization
- https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, RemoveStatement, Span
from hotlap.source.lint.api import FixSafety, Violation, called_from
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.torch_names import MEMORY_COUNTERS

code = "HL206"
title = "Every training step waits until the device has done all its work"
fix_safety: FixSafety = "unsafe"
across_files = True

_FUNCTIONS = tuple(f"torch.{it}.synchronize" for it in ("cuda", "mps", "xpu", "npu", "accelerator"))
_CLOCKS = frozenset(
    f"time.{it}" for it in ("time", "perf_counter", "monotonic", "process_time", "time_ns", "perf_counter_ns")
) | {"timeit.default_timer", "datetime.datetime.now"}
_CLOCK_METHODS = frozenset({"elapsed_time", "tic", "toc"})


def check(context: Context) -> Iterator[Violation]:
    """Each such call that runs in every step and serves no measurement."""
    for call in context.calls(*_FUNCTIONS):
        place = context.place_in_every_step(call)
        if place is None or _is_for_a_measurement(context, call, place.loop.node):
            continue
        yield Violation(
            call,
            f"`{context.tree.source(call.func)}` makes Python wait for the device in every training step.",
            called_from(place),
            _edits(context, call),
        )


def _is_for_a_measurement(context: Context, call: ast.Call, loop: ast.AST) -> bool:
    """Whether a clock or the peak of memory is read in the loop, or in the function around the call."""
    for around in (loop, context.tree.function(call)):
        for it in ast.walk(around) if around is not None else ():
            if not isinstance(it, ast.Call):
                continue
            if context.qualified_name(it.func) in _CLOCKS | MEMORY_COUNTERS:
                return True
            if isinstance(it.func, ast.Attribute) and it.func.attr in _CLOCK_METHODS:
                return True
    return False


def _edits(context: Context, call: ast.Call) -> Change:
    statement = context.tree.parent(call)
    return (RemoveStatement(Span.of(statement)),) if isinstance(statement, ast.Expr) else ()


bad = {
    "at the end of every step": """
        import torch

        for images, labels in loader:
            loss = criterion(model(images.cuda()), labels.cuda())
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
        """,
    "in a function that every step calls": """
        from torch import cuda

        def step(batch):
            loss = model(batch.cuda()).mean()
            loss.backward()
            cuda.synchronize()
            optimizer.step()

        for batch in loader:
            step(batch)
        """,
    "of whatever accelerator there is": """
        import torch

        def train(model, loader, optimizer, device):
            for batch in loader:
                loss = model(batch.to(device)).mean()
                loss.backward()
                torch.accelerator.synchronize()
                optimizer.step()
        """,
}
fixed = {
    "at the end of every step": """
        import torch

        for images, labels in loader:
            loss = criterion(model(images.cuda()), labels.cuda())
            loss.backward()
            optimizer.step()
        """,
}
good = {
    "once per epoch": """
        import torch

        for epoch in range(10):
            for batch in loader:
                loss = model(batch.cuda()).mean()
                loss.backward()
                optimizer.step()
            torch.cuda.synchronize()
        """,
    "for a clock": """
        import time

        import torch

        for batch in loader:
            begun = time.perf_counter()
            loss = model(batch.cuda()).mean()
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
        """,
    "to measure memory": """
        import torch

        for batch in loader:
            model(batch.cuda()).mean().backward()
            optimizer.step()
            torch.cuda.synchronize()
            peaks.append(torch.cuda.max_memory_allocated())
        """,
    "every hundredth step": """
        import torch

        for step, batch in enumerate(loader):
            loss = model(batch.cuda()).mean()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                torch.cuda.synchronize()
        """,
    "no training": """
        import torch

        for batch in loader:
            outputs.append(model(batch.cuda()))
            torch.cuda.synchronize()
        """,
}
