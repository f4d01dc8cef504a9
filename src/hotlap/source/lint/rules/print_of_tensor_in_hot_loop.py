"""Every training step waits for the device to print a tensor.

## What it does
Finds `print`, logging calls and progress bars that are given a tensor, or a text with a tensor in it, in every step of
a training loop. Behind an interval (`if step % 100 == 0`) or a flag that cannot be judged from the source it is silent;
it is silent too for tensors that are known to lie on the host, and in files that use no accelerator.

## Why it is slow
To print a tensor Python has to read it, and waits until the device has computed it. The device's queue runs empty while
the text is made, in every step.

## Example
    for batch in loader:
        loss = model(batch.to(device)).mean()
        loss.backward()
        optimizer.step()
        print(f"loss {loss:.3f}")

## Use instead
    for step, batch in enumerate(loader):
        loss = model(batch.to(device)).mean()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"loss {loss:.3f}")

## Fix safety
None: how often to report is for a person to decide.

## References
- https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.lint.api import FixSafety, Violation, called_from
from hotlap.source.lint.context import Context

code = "HL202"
title = "Every training step waits for the device to print a tensor"
fix_safety: FixSafety = "none"
across_files = True

_LOGGING = ("info", "warning", "error")
_BARS = ("set_postfix", "set_postfix_str", "set_description", "set_description_str")
_LOGGERS = ("logging.getLogger", "loguru.logger")
_TEXTS = ("builtins.str", "builtins.repr", "builtins.format", "builtins.print")


def check(context: Context) -> Iterator[Violation]:
    """Each printing of a tensor in every step."""
    if not context.uses_accelerator:
        return
    for call in _printing(context):
        shown = [it for argument in _arguments(call) for it in _texts(context, argument)]
        tensor = next((it for it in shown if context.is_tensor(it) and context.place(it) != "host"), None)
        place = context.place_in_every_step(call) if tensor is not None else None
        if tensor is not None and place is not None:
            text = context.tree.source(tensor)
            yield Violation(call, f"Printing `{text}` waits for the device in every training step.", called_from(place))


def _printing(context: Context) -> Iterator[ast.Call]:
    yield from context.calls("builtins.print", "tqdm.tqdm.write", *(f"logging.{it}" for it in _LOGGING))
    for call, function in context.methods(*_LOGGING):
        made = context.value(function.value)
        name = context.qualified_name(made.func if isinstance(made, ast.Call) else made)
        if name in _LOGGERS:
            yield call
    for call, _ in context.methods(*_BARS):
        yield call


def _arguments(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (it.value for it in call.keywords)


def _texts(context: Context, argument: ast.expr) -> Iterator[ast.expr]:
    """An argument and what is written into it: by an f-string, ``str``, ``format``, ``%`` or a dictionary."""
    match argument:
        case ast.JoinedStr(values=values):
            for it in values:
                if isinstance(it, ast.FormattedValue):
                    yield from _texts(context, it.value)
        case ast.BinOp(left=left, op=ast.Mod() | ast.Add(), right=right) if context.kind(left) == "text":
            yield from _texts(context, right)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for it in parts:
                yield from _texts(context, it)
        case ast.Dict(values=values):
            for it in values:
                yield from _texts(context, it)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format")):
            yield from _arguments(argument)
        case ast.Call() if context.qualified_name(argument.func) in _TEXTS:
            yield from _arguments(argument)
        case _:
            yield argument


bad = {
    "the loss, in an f-string": """
        import torch

        for epoch in range(10):
            for images, labels in loader:
                loss = criterion(model(images.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                print(f"epoch {epoch}: loss {loss:.4f}")
        """,
    "by a logger": """
        import logging
        import torch.nn.functional as F

        logger = logging.getLogger(__name__)

        def train(model, loader, optimizer):
            for images, labels in loader:
                loss = F.cross_entropy(model(images.cuda()), labels.cuda())
                loss.backward()
                optimizer.step()
                logger.info("loss %s", loss)
        """,
    "on a progress bar": """
        import torch
        from tqdm import tqdm

        bar = tqdm(loader)
        for batch in bar:
            loss = model(batch.cuda()).mean()
            loss.backward()
            optimizer.step()
            bar.set_postfix(loss=loss)
        """,
    "every epoch is a step, and so is every print": """
        import torch

        for step in range(1000):
            loss = (model(images.to("cuda")) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("step {} loss {}".format(step, loss))
        """,
}
good = {
    "every hundredth step": """
        import torch

        for step, batch in enumerate(loader):
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            if (step + 1) % 100 == 0:
                print("loss", loss)
        """,
    "its shape": """
        import torch

        for batch in loader:
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            print(loss.shape, loss.dtype, len(batch))
        """,
    "a number that is there already": """
        import torch

        for step, batch in enumerate(loader):
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            print(f"step {step}")
        """,
    "once per epoch": """
        import torch

        for epoch in range(10):
            for batch in loader:
                loss = model(batch.to(device)).mean()
                loss.backward()
                optimizer.step()
            print(epoch, loss)
        """,
    "on the first step only": """
        import torch

        for i, batch in enumerate(loader):
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            if i == 0:
                print(loss)
        """,
}
