"""A model or function is compiled again in every pass of a loop.

## What it does
Finds `torch.compile` (called, or as the decorator of a function that is defined there) and `model.compile()` where they
run in every training step, or in every pass of another loop in which what is compiled stays the same. It is silent
where the call is guarded, as by `if compiled is None`, where the loop makes a new model or other options in each pass,
where it empties the compiler's caches to measure it, and in functions whose results are cached.

## Why it is slow
Wrapping is cheap, the first call through each new wrapper is not: the compiler is set up again and looks for code that
it compiled before. Where options, closures or what is wrapped differ from pass to pass (`model = torch.compile(model)`
wraps the last pass's wrapper), it compiles again, up to its limit, after which it runs everything eagerly.

## Example
    for batch in loader:
        compiled = torch.compile(model)
        loss = compiled(batch).mean()
        loss.backward()
        optimizer.step()

## Use instead
    compiled = torch.compile(model)
    for batch in loader:
        loss = compiled(batch).mean()
        loss.backward()
        optimizer.step()

## Fix safety
None: which name the steps should use is for a person to decide.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.compile.html
- https://docs.pytorch.org/docs/stable/compile/programming_model.recompilation.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.lint.api import FixSafety, Violation, called_from
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.tree import FUNCTIONS, Function, Loop

code = "HL401"
title = "A model or function is compiled again in every pass of a loop"
fix_safety: FixSafety = "none"
across_files = True
measured = (
    "Without it a script made to show it trains 1.77x as fast (95 % interval 1.60 to 1.95), on 2 cores, 24 "
    "GiB, no accelerator (docs/benchmarks/lint-impact.md)."
)

_COMPILE = "torch.compile"
_RESETS = ("torch._dynamo.reset", "torch.compiler.reset")
_CACHES = ("functools.cache", "functools.lru_cache", "functools.cached_property")


def check(context: Context) -> Iterator[Violation]:
    """Each compiling that is repeated although nothing about it changes."""
    for node in _compilings(context):
        # A decorator runs where its function is defined, not in that function.
        above = context.tree.parent(node)
        runs = above if isinstance(above, FUNCTIONS) and node in above.decorator_list else node
        if _repeating(context, runs) is not None:
            yield Violation(node, "This is wrapped again in every pass of the loop; compile it once, before the loop.")
            continue
        place = context.hot_place(runs)
        if place is not None and place.call is not None and place.every_step and not _is_kept(context, runs):
            text = "This is wrapped again in every training step; compile it once."
            yield Violation(node, text, called_from(place))


def _compilings(context: Context) -> Iterator[ast.expr]:
    yield from context.calls(_COMPILE)
    for call, function in context.methods("compile"):
        if context.kind(function.value) in ("module", "compiled"):
            yield call
    definitions: list[Function] = [*context.tree.of(ast.FunctionDef), *context.tree.of(ast.AsyncFunctionDef)]
    for definition in definitions:
        for decorator in definition.decorator_list:
            if context.qualified_name(decorator) == _COMPILE:
                yield decorator


def _repeating(context: Context, node: ast.AST) -> Loop | None:
    """The innermost loop around, where it compiles the same in every pass."""
    loop = next(context.loops(node), None)
    if loop is None or context.guards.frequency(node, loop) != "every_step" or _is_guarded(context, node, loop):
        return None
    if any(context.tree.within(it, loop) for it in context.calls(*_RESETS)):
        return None
    return None if _changes(context, node, loop) else loop


def _is_guarded(context: Context, node: ast.AST, outer: ast.AST) -> bool:
    """Whether it is inside a test for an existing object:  ``if compiled is None``, ``if key not in cache``."""
    for above in context.tree.ancestors(node):
        if above is outer:
            return False
        if isinstance(above, (ast.If, ast.IfExp)):
            return True
    return False


def _changes(context: Context, node: ast.AST, loop: Loop) -> bool:
    """Whether the loop binds something that the compiling depends on, other than by compiling it."""
    statement = context.tree.statement(node)
    read: set[str] = set()
    for it in ast.walk(statement):
        if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Load):
            for binding in context.bindings(it):
                if context.tree.within(binding.node, loop) and not context.tree.within(binding.node, statement):
                    return True
        elif isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Load):
            read.add(ast.dump(it))
    stored = (it for it in ast.walk(loop) if isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Store))
    return any(ast.dump(_loaded(it)) in read and context.tree.statement(it) is not statement for it in stored)


def _loaded(attribute: ast.Attribute) -> ast.Attribute:
    return ast.Attribute(attribute.value, attribute.attr, ast.Load())


def _is_kept(context: Context, node: ast.AST) -> bool:
    """Whether the function around keeps its result: it is cached, guarded, or empties the compiler's caches."""
    function = context.tree.function(node)
    if function is None or _is_guarded(context, node, function):
        return True
    if any(context.tree.within(it, function) for it in context.calls(*_RESETS)):
        return True
    plain = (it.func if isinstance(it, ast.Call) else it for it in function.decorator_list)
    return any(context.qualified_name(it) in _CACHES for it in plain)


bad = {
    "in each step": """
        import torch

        for batch in loader:
            compiled = torch.compile(model)
            loss = compiled(batch).mean()
            loss.backward()
            optimizer.step()
        """,
    "in each epoch, the last one's wrapper": """
        import torch

        def main(model, loader, optimizer):
            for epoch in range(10):
                model = torch.compile(model, mode="max-autotune")
                for batch in loader:
                    model(batch).mean().backward()
                    optimizer.step()
        """,
    "in a function that the training loop calls": """
        import torch

        def step(model, batch):
            run = torch.compile(model)
            return run(batch).mean()

        def train(model, loader, optimizer):
            for batch in loader:
                loss = step(model, batch)
                loss.backward()
                optimizer.step()
        """,
    "in place": """
        import torch
        from torch import nn

        model = nn.Linear(10, 2)
        for batch in loader:
            model.compile()
            model(batch).sum().backward()
            optimizer.step()
        """,
    "a function that is defined in the loop": """
        import torch

        for batch in loader:
            @torch.compile
            def loss_of(x):
                return model(x).mean()

            loss_of(batch).backward()
            optimizer.step()
        """,
}
good = {
    "before the loop": """
        import torch

        model = torch.compile(model)
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
        """,
    "each layer of a model": """
        import torch

        for index, layer in enumerate(model.layers):
            model.layers[index] = torch.compile(layer)
        for block in model.blocks:
            block.compile()
        """,
    "a new model in each pass": """
        import torch

        for fold in range(5):
            model = build(fold)
            model = torch.compile(model)
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
        """,
    "other options in each pass": """
        import torch

        for mode in ("default", "reduce-overhead"):
            fast = torch.compile(model, mode=mode)
            measure(fast)
        """,
    "once, when it is first needed": """
        import torch

        class Trainer:
            def step(self, batch):
                if self.compiled is None:
                    self.compiled = torch.compile(self.model)
                return self.compiled(batch)

            def train(self, loader, optimizer):
                for batch in loader:
                    self.step(batch).mean().backward()
                    optimizer.step()
        """,
    "measuring the compiler": """
        import torch

        for trial in range(3):
            torch.compiler.reset()
            fast = torch.compile(model)
            fast(batch)
        """,
    "regular expressions are compiled too": """
        import re
        import torch

        for batch in loader:
            pattern = re.compile("x")
            model(batch).mean().backward()
            optimizer.step()
        """,
}
