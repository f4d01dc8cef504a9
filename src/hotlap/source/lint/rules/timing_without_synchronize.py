"""A device's work is timed without waiting for it, or together with its compilation.

## What it does
Finds `time.perf_counter() - start` (and `time.time`, `time.monotonic`) around a model's call, a backward pass or an
optimizer's step, where nothing between the two readings waits for the device. It also finds the first call of what
`torch.compile` gave, timed. Time around a loop over batches is not reported: what is still queued at its end hardly
counts there.

## Why it is wrong
A call that works on a device returns as soon as the work is queued, so what was measured is how long queueing took. The
first call of a compiled model compiles it, which takes many times as long as all later calls.

## Example
    start = time.perf_counter()
    output = model(batch)
    print(time.perf_counter() - start)

## Use instead
    model(batch)                        # compiles, chooses algorithms
    torch.cuda.synchronize()
    start = time.perf_counter()
    output = model(batch)
    torch.cuda.synchronize()
    print(time.perf_counter() - start)

`torch.utils.benchmark.Timer` and `torch.cuda.Event(enable_timing=True)` do it without further care.

## Fix safety
None: which device to wait for, and whether to, is for a person to decide.

## References
- https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
- https://docs.pytorch.org/tutorials/recipes/recipes/benchmark.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.tree import LOOPS, Scope

code = "HL203"
title = "A device's work is timed without waiting for it, or together with its compilation"
fix_safety: FixSafety = "none"

_CLOCKS = tuple(f"time.{it}" for it in ("time", "perf_counter", "monotonic", "perf_counter_ns", "time_ns"))
_WAITS = frozenset(
    {"synchronize", "item", "cpu", "tolist", "numpy", "barrier", "wait", "wait_for_everyone", "elapsed_time"}
)
_READS = frozenset({"builtins.print", "builtins.float", "builtins.int", "builtins.bool"})


def check(context: Context) -> Iterator[Violation]:
    """Each difference of two clock readings around device work that is not waited for."""
    if not context.uses_accelerator:
        return
    for difference in context.tree.of(ast.BinOp):
        start = _start(context, difference)
        if start is None:
            continue
        calls = _between(context, start, difference)
        if any(isinstance(it, LOOPS) for it in _loops_between(context, start, difference)) or not calls:
            continue
        work = next((it for it in calls if _is_work(context, it)), None)
        if work is None:
            continue
        related = (Related(start, "the clock is started here"),)
        compiled = next((it for it in calls if _compiles(context, it, start)), None)
        if compiled is not None:
            what = (
                f"The first call of the compiled `{context.tree.source(compiled.func)}` compiles it: it is timed too."
            )
            yield Violation(difference, what, related)
        elif not any(_waits(context, it) for it in calls):
            text = context.tree.source(work, 40)
            what = f"Nothing waits for the device between `{text}` and this reading of the clock."
            yield Violation(difference, what, related)


def _start(context: Context, difference: ast.BinOp) -> ast.Call | None:
    """The first reading of the clock, where ``difference`` is a second one less it."""
    if not isinstance(difference.op, ast.Sub) or not isinstance(difference.right, ast.Name):
        return None
    first = context.value(difference.right)
    if not _is_reading(context, context.value(difference.left)) or not _is_reading(context, first):
        return None
    assert isinstance(first, ast.Call)
    return first if context.tree.scope(first) is context.tree.scope(difference) else None


def _is_reading(context: Context, expression: ast.expr | None) -> bool:
    return isinstance(expression, ast.Call) and context.qualified_name(expression.func) in _CLOCKS


def _end(context: Context, difference: ast.BinOp) -> ast.expr:
    end = context.value(difference.left)
    return end if end is not None else difference


def _between(context: Context, start: ast.Call, difference: ast.BinOp) -> Sequence[ast.Call]:
    """The calls of the same function that run between the two readings, in the order of the source."""
    scope: Scope = context.tree.scope(start)
    after, before = _position(start), _position(_end(context, difference))
    calls = (it for it in context.tree.of(ast.Call) if after < _position(it) < before)
    return [it for it in calls if context.tree.scope(it) is scope]


def _loops_between(context: Context, start: ast.Call, difference: ast.BinOp) -> Iterator[ast.AST]:
    """The loops over batches that are timed as a whole; one over a written number of passes is a benchmark."""
    after, before = _position(start), _position(_end(context, difference))
    for loop in (*context.tree.of(ast.For), *context.tree.of(ast.While)):
        if after < _position(loop) < before and not (isinstance(loop, ast.For) and _counted(context, loop.iter)):
            yield loop


def _counted(context: Context, over: ast.expr) -> bool:
    is_range = isinstance(over, ast.Call) and context.qualified_name(over.func) == "builtins.range"
    return is_range and isinstance(over, ast.Call) and all(context.constant(it) is not ... for it in over.args)


def _is_work(context: Context, call: ast.Call) -> bool:
    """A model's call, a backward pass, an optimizer's step."""
    if call in context.training.backward_calls or call in context.training.optimizer_steps:
        return True
    return context.kind(call.func) in ("module", "compiled") and context.kind(call) == "output"


def _waits(context: Context, call: ast.Call) -> bool:
    """Whether a call waits for the device, or may: a function of which nothing is known could do so."""
    if isinstance(call.func, ast.Attribute) and (call.func.attr in _WAITS or "sync" in call.func.attr):
        return True
    name = context.qualified_name(call.func)
    if name in _READS:
        return any(context.is_tensor(it) or context.kind(it) == "output" for it in call.args)
    if name is not None:
        return not name.startswith(("torch.", "time.", "builtins."))
    if _is_work(context, call) or context.kind(call.func) is not None:
        return False
    if isinstance(call.func, ast.Attribute):
        return context.kind(call.func.value) is None and call.func.attr not in ("zero_grad", "to", "append", "backward")
    return True


def _compiles(context: Context, call: ast.Call, start: ast.Call) -> bool:
    """Whether this is the first call of a compiled object, as far as this function shows."""
    if context.kind(call.func) != "compiled" or not isinstance(call.func, ast.Name):
        return False
    bindings = context.bindings(call.func)
    here = all(context.tree.scope(it.node) is context.tree.scope(call) for it in bindings)
    if not here or any(True for _ in context.loops(start)):
        return False
    for other in context.tree.of(ast.Call):
        mentioned = (other.func, *other.args, *(it.value for it in other.keywords))
        names = [it for it in mentioned if isinstance(it, ast.Name) and it.id == call.func.id]
        if _position(other) < _position(start) and any(set(context.bindings(it)) & set(bindings) for it in names):
            return False
    return True


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


bad = {
    "a forward pass": """
        import time
        import torch

        model = torch.nn.Linear(1000, 1000).cuda()
        batch = torch.randn(64, 1000, device="cuda")
        model(batch)
        start = time.perf_counter()
        output = model(batch)
        print(time.perf_counter() - start)
        """,
    "each step": """
        from time import time
        import torch

        def train(loader, device):
            model = torch.nn.Linear(10, 1).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for batch in loader:
                begin = time()
                loss = model(batch.to(device)).mean()
                loss.backward()
                optimizer.step()
                times.append(time() - begin)
        """,
    "many passes, two names": """
        import time
        import torch

        model = torch.nn.Linear(1000, 1000).to("cuda")
        t0 = time.time()
        for _ in range(100):
            model(batch)
        t1 = time.time()
        print(t1 - t0)
        """,
    "with the compilation": """
        import time
        import torch

        model = torch.compile(torch.nn.Linear(1000, 1000).cuda())
        start = time.perf_counter()
        model(batch)
        torch.cuda.synchronize()
        print(time.perf_counter() - start)
        """,
}
good = {
    "waited for": """
        import time
        import torch

        model = torch.nn.Linear(1000, 1000).cuda()
        torch.cuda.synchronize()
        start = time.perf_counter()
        model(batch)
        torch.cuda.synchronize()
        print(time.perf_counter() - start)
        """,
    "an epoch": """
        import time
        import torch

        model = torch.nn.Linear(10, 1).cuda()
        for epoch in range(3):
            start = time.time()
            for batch in loader:
                loss = model(batch.cuda()).mean()
                loss.backward()
                optimizer.step()
            print(epoch, time.time() - start)
        """,
    "the value is read": """
        import time
        import torch

        model = torch.nn.Linear(10, 1).cuda()
        start = time.time()
        loss = model(batch).mean()
        value = loss.item()
        seconds = time.time() - start
        """,
    "waiting for data": """
        import time
        import torch

        model = torch.nn.Linear(10, 1).cuda()
        start = time.time()
        for batch in loader:
            waited = time.time() - start
            model(batch.cuda()).mean().backward()
            start = time.time()
        """,
    "no device": """
        import time
        import torch

        model = torch.nn.Linear(10, 1)
        start = time.time()
        model(batch)
        print(time.time() - start)
        """,
    "compiled, and warm": """
        import time
        import torch

        model = torch.compile(torch.nn.Linear(1000, 1000).cuda())
        model(batch)
        torch.cuda.synchronize()
        start = time.perf_counter()
        model(batch)
        torch.cuda.synchronize()
        print(time.perf_counter() - start)
        """,
    "a function defined elsewhere": """
        import time
        import torch
        from helpers import timed_step

        model = torch.nn.Linear(10, 1).cuda()
        start = time.time()
        model(batch)
        timed_step(model)
        print(time.time() - start)
        """,
}
