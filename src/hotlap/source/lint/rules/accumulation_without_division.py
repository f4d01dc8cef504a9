"""Gradients of several batches are added up, but the loss is not divided by their number.

## What it does
Finds a loop in which `backward` runs in every pass, the optimizer's step only in every n-th (`if step % n == 0`), and
neither the loss nor the gradients are divided by n; or with the step behind `for _ in range(accumulation_steps)`. It is
silent where n scales anything, such as the learning rate, where it is given to other code, where the loss is a sum, and
where it is unknown how it is computed.

## Why it is wrong
`backward` adds gradients. Over n batches whose losses are means, the sum is n times the gradient of one large batch:
the update is n times larger than with that batch, and clipping to a norm cuts n times as deep. Accumulation is then no
substitute for a larger batch, and changing n changes how the model learns. (Adam's update hardly depends on the scale
of the gradients; clipping does with any optimizer.)

## Example
    for step, batch in enumerate(loader):
        loss = criterion(model(batch), target)
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()

## Use instead
    for step, batch in enumerate(loader):
        loss = criterion(model(batch), target)
        (loss / accumulation_steps).backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()

## Fix safety
Unsafe: the loss is divided for the backward pass. Every update becomes n times smaller, so a learning rate that was
found without the division has to be found again.

## References
- https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotlap.source.edits.kinds import Code, Span, WrapExpression
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.tree import FUNCTIONS, LOOPS, Loop, word
from hotlap.source.lint.model.updates import Step, same

code = "HL304"
title = "Gradients of several batches are added up, but the loss is not divided by their number"
fix_safety: FixSafety = "unsafe"

_LOSS_WORDS = ("criterion", "loss", "objective")
_SCALING = (ast.Div, ast.Mult)
_LEARNING = re.compile(r"lr|rate|loss|grad|scal|weight")
_PRINTING = frozenset({"info", "debug", "warning", "log", "format", "add_argument", "add_scalar", "update"})


def check(context: Context) -> Iterator[Violation]:
    """Each backward pass of an undivided loss whose gradients wait for a later step."""
    for step in context.updates.steps:
        place = context.training.loop_of(step.call)
        if place is None or not isinstance(place.node, LOOPS):
            continue
        backward = [it for it in context.training.backward_calls if context.tree.within(it, place.node)]
        number = _number(context, step, backward[0], place.node) if len(backward) == 1 else None
        if number is None:
            continue
        loss = _loss(context, backward[0])
        if loss is None or not _is_plain_mean(context, loss) or _is_scaled(context, number, place.node):
            continue
        text = context.tree.source(number)
        yield Violation(
            backward[0],
            f"The gradients of `{text}` batches are added up, and the loss is not divided by `{text}`.",
            (Related(step.call, "the step"),),
            (WrapExpression(Span.of(loss), Code(f"_ / {context.tree.source(number, limit=500)}")),),
        )


def _number(context: Context, step: Step, backward: ast.Call, loop: Loop) -> ast.expr | None:
    """The number of batches accumulated per step; None if there is no accumulation, or it is unknown."""
    inner = next(context.loops(backward), None)
    clears = [call for call, _ in context.updates.clears if context.tree.within(call, loop)]
    if inner is None or not clears or context.guards.frequency(backward, inner) != "every_step":
        return None
    if inner is loop:
        number = _interval(context, step, loop)
        test = next((it for it in context.tree.ancestors(step.call) if isinstance(it, ast.If)), None)
        return number if test is not None and all(_together(context, it, test) for it in clears) else None
    if context.tree.within(step.call, inner) or any(context.tree.within(it, inner) for it in clears):
        return None
    match inner:
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[ast.Name() | ast.Attribute() as number])):
            # Other loops over several losses may intend their sum; the name of this one is explicit.
            return number if "accum" in word(number).lower() or "micro" in word(number).lower() else None
    return None


def _interval(context: Context, step: Step, loop: Loop) -> ast.expr | None:
    """The n of the ``if i % n == 0`` between a loop and the step; None where there is no such test, or another too."""
    found: ast.expr | None = None
    child: ast.AST = step.call
    for above in context.tree.ancestors(step.call):
        if above is loop:
            return found
        if isinstance(above, ast.If):
            if child not in above.body or found is not None:
                return None
            found = _modulus(context, above.test)
            if found is None:
                return None
        child = above
    return None


def _modulus(context: Context, test: ast.expr) -> ast.expr | None:
    """The n of ``i % n == 0`` and of ``i % n == 0 or last``, also where the test was given a name."""
    test = context.value(test) or test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return next((found for it in test.values if (found := _modulus(context, it)) is not None), None)
    match test:
        case ast.Compare(left=ast.BinOp(op=ast.Mod(), right=number), ops=[ast.Eq()]):
            pass
        case ast.UnaryOp(op=ast.Not(), operand=ast.BinOp(op=ast.Mod(), right=number)):
            pass
        case _:
            return None
    value = context.constant(number)
    if isinstance(value, int) and value < 2:
        return None
    return number if isinstance(number, (ast.Name, ast.Attribute, ast.Constant)) else None


def _together(context: Context, clear: ast.Call, test: ast.If) -> bool:
    if context.tree.within(clear, test):
        return True
    above = next((it for it in context.tree.ancestors(clear) if isinstance(it, ast.If)), None)
    return above is not None and same(above.test, test.test)


def _loss(context: Context, backward: ast.Call) -> ast.expr | None:
    """The loss that backward is called on, also scaled; None for engines, which divide by themselves."""
    scaled = next((it.loss for it in context.updates.scaled if it.call is backward), None)
    if scaled is not None:
        return scaled
    if backward.args or not isinstance(backward.func, ast.Attribute):
        return None
    return backward.func.value


def _is_plain_mean(context: Context, loss: ast.expr) -> bool:
    """Whether the whole computation of the loss is visible, and nothing scales it."""
    made: list[ast.expr] = [loss]
    if isinstance(loss, ast.Name):
        bindings = context.bindings(loss)
        made = [it.value for it in bindings if it.how == "assign" and it.value is not None]
        if not made or len(made) != len(bindings):
            return False
    return all(_is_mean(context, it) for it in made)


def _is_mean(context: Context, value: ast.expr) -> bool:
    match value:
        case ast.Attribute(attr="loss", value=ast.Name() | ast.Call()):
            return True
        case ast.Call(func=ast.Attribute(attr="mean"), args=[]):
            return True
        case ast.Call(func=function):
            given = context.argument(value, "reduction")
            if not given.absent and context.constant(given.value) != "mean":
                return False
            definition = context.callee(value)
            if isinstance(definition, FUNCTIONS):
                return False
            name = context.qualified_name(function)
            if name is not None:
                return name.startswith("torch.nn.functional.")
            made = context.value(function)
            if isinstance(made, ast.Call) and not context.argument(made, "reduction").absent:
                return False
            if isinstance(made, ast.Call) and context.kind(made) == "criterion":
                return True
            return any(it in word(function).lower() for it in _LOSS_WORDS) and isinstance(function, ast.Name)
    return False


def _is_scaled(context: Context, number: ast.expr, loop: Loop) -> bool:
    """Whether n takes part in a product or division that may be about the loss, the gradients or the learning rate, or
    is given to something that may divide by it."""
    value = context.constant(number)
    products = [(it, (it.left, it.right)) for it in context.tree.of(ast.BinOp) if isinstance(it.op, _SCALING)]
    changes = [(it, (it.value,)) for it in context.tree.of(ast.AugAssign) if isinstance(it.op, _SCALING)]
    methods = [(call, tuple(call.args)) for call, _ in context.methods("div", "div_", "mul", "mul_", "true_divide")]
    for node, sides in (*products, *changes, *methods):
        if any(_is_number(context, it, number, value) for it in sides) and _is_about_learning(context, node):
            return True
    return any(_may_divide(context, call, number, loop) for call in context.tree.of(ast.Call))


def _is_number(context: Context, side: ast.expr, number: ast.expr, value: object) -> bool:
    """Whether a side of a product is n, has its value, or holds it; a count, ``len(loader) // n``, does not."""
    if isinstance(side, ast.BinOp):
        counts = isinstance(side.op, (ast.FloorDiv, ast.Mod))
        return not counts and any(_is_number(context, it, number, value) for it in (side.left, side.right))
    if isinstance(side, ast.Call):
        return any(_is_number(context, it, number, value) for it in side.args)
    return (bool(word(side)) and word(side) == word(number)) or (value is not ... and context.constant(side) == value)


def _is_about_learning(context: Context, node: ast.AST) -> bool:
    texts = (
        it.id if isinstance(it, ast.Name) else it.attr if isinstance(it, ast.Attribute) else getattr(it, "arg", None)
        for it in ast.walk(context.tree.statement(node))
    )
    return any(it is not None and _LEARNING.search(it.lower()) for it in texts)


def _may_divide(context: Context, call: ast.Call, number: ast.expr, loop: Loop) -> bool:
    """Whether a call is given n by name and may divide by it: any but those that count, parse or print."""
    given = [*call.args, *(it.value for it in call.keywords)]
    if not word(number) or not any(word(it) == word(number) for it in given):
        return False
    name = context.qualified_name(call.func) or ""
    if name.startswith(("builtins.", "math.")) or word(call.func) in _PRINTING:
        return False
    return context.tree.within(call, loop) or not isinstance(context.callee(call), FUNCTIONS)


bad = {
    "every fourth batch": """
        import torch
        import torch.nn.functional as F

        def train(model, loader, optimizer, accumulation_steps):
            optimizer.zero_grad()
            for step, (images, labels) in enumerate(loader):
                loss = F.cross_entropy(model(images), labels)
                loss.backward()
                if (step + 1) % accumulation_steps == 0:
                    optimizer.step()
                    optimizer.zero_grad()
        """,
    "with a scaler, and the last batch": """
        import torch
        from torch import nn

        args = parse()
        criterion = nn.CrossEntropyLoss()
        scaler = torch.amp.GradScaler("cuda")
        for i, (images, labels) in enumerate(loader):
            with torch.autocast("cuda"):
                loss = criterion(model(images), labels)
            scaler.scale(loss).backward()
            if (i + 1) % args.accumulate == 0 or i + 1 == len(loader):
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
        """,
    "an inner loop, and a count of steps": """
        import torch
        import torch.nn.functional as F

        args = parse()
        total = len(loader) // args.accumulation * args.epochs
        for step in range(total):
            for micro_step in range(args.accumulation):
                images, labels = next(batches)
                loss = F.cross_entropy(model(images), labels)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "a number, and a model that gives its loss": """
        import torch

        for step, batch in enumerate(loader):
            output = model(**batch)
            output.loss.backward()
            if step % 8 == 7:
                optimizer.step()
                optimizer.zero_grad()
            if not step % 100:
                print(step)
        """,
}
fixed = {
    "every fourth batch": """
        import torch
        import torch.nn.functional as F

        def train(model, loader, optimizer, accumulation_steps):
            optimizer.zero_grad()
            for step, (images, labels) in enumerate(loader):
                loss = F.cross_entropy(model(images), labels)
                (loss / accumulation_steps).backward()
                if (step + 1) % accumulation_steps == 0:
                    optimizer.step()
                    optimizer.zero_grad()
        """,
    "with a scaler, and the last batch": """
        import torch
        from torch import nn

        args = parse()
        criterion = nn.CrossEntropyLoss()
        scaler = torch.amp.GradScaler("cuda")
        for i, (images, labels) in enumerate(loader):
            with torch.autocast("cuda"):
                loss = criterion(model(images), labels)
            scaler.scale(loss / args.accumulate).backward()
            if (i + 1) % args.accumulate == 0 or i + 1 == len(loader):
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
        """,
}
good = {
    "divided": """
        import torch
        import torch.nn.functional as F

        for step, (images, labels) in enumerate(loader):
            loss = F.cross_entropy(model(images), labels) / accumulation_steps
            loss.backward()
            if (step + 1) % accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
        """,
    "divided in place": """
        import torch
        import torch.nn.functional as F

        for step, (images, labels) in enumerate(loader):
            loss = F.cross_entropy(model(images), labels)
            loss /= 4
            loss.backward()
            if (step + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        """,
    "several losses, whose sum is meant": """
        import torch
        import torch.nn.functional as F

        for images, labels in loader:
            for head in range(heads):
                loss = F.cross_entropy(model(images, head), labels)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "another function divides the gradients": """
        import torch
        import torch.nn.functional as F

        from parts import average_gradients

        for step, (images, labels) in enumerate(loader):
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            if (step + 1) % n == 0:
                average_gradients(model, n)
                optimizer.step()
                optimizer.zero_grad()
        """,
    "the learning rate was adapted": """
        import torch
        import torch.nn.functional as F

        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr / args.accumulate)
        for step, (images, labels) in enumerate(loader):
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            if (step + 1) % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
        """,
    "a step in every pass": """
        import torch
        import torch.nn.functional as F

        for step, (images, labels) in enumerate(loader):
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 100 == 0:
                print(step)
        """,
    "a sum, divided by what it counts later": """
        import torch
        import torch.nn.functional as F

        for step, (images, labels) in enumerate(loader):
            loss = F.cross_entropy(model(images), labels, reduction="sum")
            loss.backward()
            if (step + 1) % n == 0:
                optimizer.step()
                optimizer.zero_grad()
        """,
    "how the loss is computed is not known": """
        import torch

        from parts import compute

        for step, batch in enumerate(loader):
            loss = compute(model, batch)
            loss.backward()
            if (step + 1) % n == 0:
                optimizer.step()
                optimizer.zero_grad()
        """,
    "accelerate divides by itself": """
        import torch
        import torch.nn.functional as F
        from accelerate import Accelerator

        accelerator = Accelerator(gradient_accumulation_steps=4)
        for step, (images, labels) in enumerate(loader):
            loss = F.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            if (step + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        """,
    "gradients are cleared in every pass": """
        import torch
        import torch.nn.functional as F

        for step, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            if (step + 1) % 2 == 0:
                optimizer.step()
        """,
}
