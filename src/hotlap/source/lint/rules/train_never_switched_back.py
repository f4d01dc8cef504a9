"""A model that was put into evaluation mode goes on training in it.

## What it does
Finds loops over epochs or steps in which a model trains, is put into evaluation mode by `model.eval()` behind that or
at an interval, in the loop or in a function of the file that it calls, and is put back nowhere in the loop by
`model.train()`. It is silent for models that the loop does not train, where the loop ends after the evaluation, and
where the model is handed to a function that is not in the file.

## Why it is wrong
`model.train()` before the loop holds for the first epoch only. From the second on dropout does nothing and batch
normalisation no longer follows the data, so another model is trained than was meant; nothing else shows it.

## Example
    model.train()
    for epoch in range(epochs):
        for batch in train_loader:
            train_step(model, batch)
        model.eval()
        validate(model, val_loader)

## Use instead
    for epoch in range(epochs):
        model.train()
        for batch in train_loader:
            train_step(model, batch)
        model.eval()
        validate(model, val_loader)

## Fix safety
Shown only: `model.train()` at the beginning of the training loop changes what is trained, which is the point.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.train
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hotlap.source.edits.kinds import Change, Code, InsertBefore, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.check import position
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.tree import FUNCTIONS, LOOPS, Function, Loop

code = "HL353"
title = "A model that was put into evaluation mode goes on training in it"
fix_safety: FixSafety = "shown"

_DEEPEST = 3
_LEAVES = (ast.Break, ast.Return, ast.Raise)


@dataclass
class _Seen:
    """The events of models in one loop over epochs. A model is named by the text of its expression in that loop."""

    trained: dict[str, ast.AST] = field(default_factory=dict)
    switched: dict[str, tuple[ast.Call, ast.AST]] = field(default_factory=dict)
    restored: set[str] = field(default_factory=set)
    handed_on: set[str] = field(default_factory=set)


def check(context: Context) -> Iterator[Violation]:
    """Each first switch to evaluation mode that nothing in its loop reverts."""
    if not context.training_loops or not context.evaluation.mode_switches:
        return
    loops: list[Loop] = [*context.tree.of(ast.For), *context.tree.of(ast.While)]
    for loop in loops:
        if not context.training.around_training(loop):
            continue
        seen = _Seen()
        _look(context, seen, loop, {}, loop, _DEEPEST)
        for model, (switch, at) in seen.switched.items():
            trained = seen.trained.get(model)
            if trained is None or model in seen.restored | seen.handed_on or not _goes_on(context, loop, at, trained):
                continue
            yield Violation(
                switch,
                f"`{model}` stays in evaluation mode: what follows trains it so, since nothing calls `train()`.",
                (Related(trained, "it trains here, in every pass"),),
                _before(context, loop, model),
            )


def _goes_on(context: Context, loop: Loop, at: ast.AST, trained: ast.AST) -> bool:
    """Whether training follows the switch by mistake, and the mode is not intended for it.

    A switch before the training of each pass is intended; one after it, or in some passes only, is for an evaluation.
    """
    return position(at) > position(trained) or context.guards.frequency(at, loop) == "interval"


def _look(
    context: Context, seen: _Seen, node: ast.AST, names: Mapping[str, str], at: ast.AST | None, depth: int
) -> None:
    """Gather what happens in a loop, or a function that it calls at ``at`` whose parameters stand for ``names``."""
    is_loop = isinstance(node, LOOPS)
    for call in _calls(node):
        here = call if is_loop or at is None else at
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("eval", "train"):
            _mode(context, seen, call, _named(context, call.func.value, names), here)
        model = _named(context, call.func, names)
        if model and context.hot_place(call) is not None and not context.gradients_off(call):
            seen.trained.setdefault(model, here)
        callee = context.callee(call)
        if callee is not None and depth:
            _look(context, seen, callee, _given(context, call, callee, names), here, depth - 1)
        elif callee is None:
            seen.handed_on |= _handed_on(context, call, names)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that run with a loop or function, in source order; not those of functions that it only defines."""
    waiting = list(reversed(getattr(node, "body", [])))
    while waiting:
        it = waiting.pop()
        if isinstance(it, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(it, ast.Call):
            yield it
        waiting.extend(reversed(list(ast.iter_child_nodes(it))))


def _mode(context: Context, seen: _Seen, call: ast.Call, model: str, at: ast.AST) -> None:
    assert isinstance(call.func, ast.Attribute)
    if not model:
        return
    if call.func.attr == "eval" and not call.args:
        if not _ends(context, call):
            seen.switched.setdefault(model, (call, at))
    elif not (call.args and context.constant(call.args[0]) is False):
        seen.restored.add(model)


def _ends(context: Context, call: ast.Call) -> bool:
    """Whether a block around the call ends by leaving, so that no next epoch comes."""
    for above, name in context.tree.blocks(call):
        if isinstance(above, (*FUNCTIONS, *LOOPS)):
            return False
        block = getattr(above, name, None)
        if isinstance(block, list) and block and isinstance(block[-1], _LEAVES):
            return True
    return False


def _named(context: Context, expression: ast.expr, names: Mapping[str, str]) -> str:
    """How the loop over epochs would call it; empty for what is no name there."""
    match expression:
        case ast.Name(id=name):
            known_there = not names or context.names.home(expression) in (None, context.tree.module)
            return names.get(name, name if known_there else "")
        case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
            return f"self.{attribute}"
    return ""


def _given(context: Context, call: ast.Call, callee: Function, names: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a function by what the loop over epochs calls their values."""
    positions = [it.arg for it in (*callee.args.posonlyargs, *callee.args.args)]
    if isinstance(call.func, ast.Attribute) and positions[:1] == ["self"]:
        positions = positions[1:]
    found = {"self": "self"}
    for name, value in zip(positions, call.args, strict=False):
        found[name] = _named(context, value, names)
    for keyword in call.keywords:
        if keyword.arg:
            found[keyword.arg] = _named(context, keyword.value, names)
    return found


def _handed_on(context: Context, call: ast.Call, names: Mapping[str, str]) -> set[str]:
    """The arguments of functions outside this file, which may switch them to any mode."""
    if (context.qualified_name(call.func) or "").startswith(("torch.", "builtins.")):
        return set()
    return {_named(context, it, names) for it in (*call.args, *(it.value for it in call.keywords))} - {""}


def _before(context: Context, epochs: Loop, model: str) -> Change:
    """``model.train()`` before the training loop, if that is directly in the loop over epochs."""
    for loop in context.training_loops:
        if isinstance(loop.node, LOOPS) and context.tree.parent(loop.node) is epochs:
            return (InsertBefore(Span.of(loop.node), Code(f"{model}.train()")),)
    return ()


bad = {
    "train() before the epochs": """
        import torch
        from project import model

        model.train()
        for epoch in range(10):
            for images, labels in train_loader:
                criterion(model(images), labels).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for images, labels in val_loader:
                    correct += (model(images).argmax(1) == labels).sum()
        """,
    "in a function that evaluates": """
        import torch

        def evaluate(net, loader):
            net.eval()
            with torch.no_grad():
                return sum(net(batch).sum() for batch in loader)

        def train_epoch(model, loader, optimizer):
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()

        def main(model):
            for epoch in range(3):
                train_epoch(model, train_loader, optimizer)
                print(evaluate(model, val_loader))
        """,
    "as an attribute": """
        import torch

        class Runner:
            def fit(self, epochs):
                self.net.train()
                for epoch in range(epochs):
                    for batch in self.loader:
                        loss = self.net(batch).mean()
                        loss.backward()
                        self.optimizer.step()
                    self.validate()

            @torch.no_grad()
            def validate(self):
                self.net.eval()
                for batch in self.val_loader:
                    self.scores.append(self.net(batch))
        """,
    "at an interval, in the loop that trains": """
        import torch

        @torch.no_grad()
        def estimate_loss():
            model.eval()
            return sum(model(*get_batch()).mean() for _ in range(10))

        for step in range(10000):
            if step % 500 == 0:
                print(estimate_loss())
            model(*get_batch()).mean().backward()
            optimizer.step()
        """,
    "a full batch for each epoch": """
        import torch

        model.train()
        for epoch in range(200):
            model(features).mean().backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                print(model(features)[validation].mean())
        """,
}
fixed = {
    "train() before the epochs": """
        import torch
        from project import model

        model.train()
        for epoch in range(10):
            model.train()
            for images, labels in train_loader:
                criterion(model(images), labels).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for images, labels in val_loader:
                    correct += (model(images).argmax(1) == labels).sum()
        """,
}
good = {
    "evaluation mode is meant": """
        import torch

        for step, batch in enumerate(loader):
            model.eval()
            model(batch).mean().backward()
            optimizer.step()
        """,
    "at the beginning of each epoch": """
        import torch

        for epoch in range(10):
            model.train()
            for batch in train_loader:
                model(batch).mean().backward()
                optimizer.step()
            model.eval()
            evaluate(model)
        """,
    "by the function that trains": """
        import torch

        def train_epoch(net, loader, optimizer):
            net.train()
            for batch in loader:
                net(batch).mean().backward()
                optimizer.step()

        for epoch in range(3):
            train_epoch(model, train_loader, optimizer)
            model.eval()
            with torch.no_grad():
                print(sum(model(batch).sum() for batch in val_loader))
        """,
    "put back as it was": """
        import torch

        for epoch in range(3):
            for batch in train_loader:
                model(batch).mean().backward()
                optimizer.step()
            before = model.training
            model.eval()
            with torch.no_grad():
                print(model(sample))
            model.train(before)
        """,
    "another model is in evaluation mode": """
        import torch

        for epoch in range(3):
            for batch in train_loader:
                loss = distance(student(batch), teacher(batch).detach())
                loss.backward()
                optimizer.step()
            average.eval()
            with torch.no_grad():
                print(average(sample))
        """,
    "the last thing that is done": """
        import torch

        for epoch in range(3):
            for batch in train_loader:
                model(batch).mean().backward()
                optimizer.step()
            if epoch == 2:
                model.eval()
                print(model(sample))
                break
        """,
    "after all epochs": """
        import torch

        for epoch in range(3):
            for batch in train_loader:
                model(batch).mean().backward()
                optimizer.step()
        model.eval()
        """,
    "somebody else may put it back": """
        import torch
        from engine import report

        for epoch in range(3):
            for batch in train_loader:
                model(batch).mean().backward()
                optimizer.step()
            model.eval()
            report(model)
        """,
}
