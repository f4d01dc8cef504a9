"""A tensor is made on the host and copied to the device in every step.

## What it does
Finds `torch.zeros(...).to(device)`, `torch.ones(...).cuda()` and their like in training steps and in the `forward` of
modules: tensors that the device could make by itself. Tensors of values that only the host has, `torch.tensor(values)`,
are not reported, nor is what runs once, before training.

## Why it is slow
The host fills the tensor, and a copy from ordinary memory lets it wait for the device: a synchronization in every step,
where `device=` costs one small kernel.

## Example
    mask = torch.ones(batch_size, length).to(device)

## Use instead
    mask = torch.ones(batch_size, length, device=device)

## Fix safety
Safe: the same values are made on the device. Unsafe for random numbers (`rand`, `randn`, `randint`, `randperm`), of
which each device draws its own, and for `linspace` and `logspace`, which may round differently.

## References
- https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#create-tensors-directly-on-the-target-device
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, Code, ReplaceExpression, Span
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.devices import Copy

code = "HL603"
title = "A tensor is made on the host and copied to the device in every step"
fix_safety: FixSafety = "safe"
across_files = True

_SAME_VALUES = ("zeros", "ones", "full", "empty", "eye", "arange")
_OTHER_VALUES = ("rand", "randn", "randint", "randperm", "linspace", "logspace")
# With these the results differ: a leaf, a pinned copy, another generator.
_APART = frozenset({"device", "requires_grad", "pin_memory", "out", "generator", "layout"})


def check(context: Context) -> Iterator[Violation]:
    """Each copy to a device of a tensor that is made in the same expression, in code that runs in every step."""
    for copy in context.devices.copies:
        made = copy.tensor
        if copy.target == "host" or copy.non_blocking is not None or not isinstance(made, ast.Call):
            continue
        name = context.qualified_name(made.func) or ""
        module, _, last = name.rpartition(".")
        if module != "torch" or last not in (*_SAME_VALUES, *_OTHER_VALUES):
            continue
        if any(it.arg is None or it.arg in _APART for it in made.keywords) or not _runs_often(context, copy.call):
            continue
        yield Violation(
            copy.call,
            f"`torch.{last}` fills this tensor on the host, which then waits for its copy; make it with `device=`.",
            edits=_edits(context, copy, made),
            safety="unsafe" if last in _OTHER_VALUES else None,
        )


def _runs_often(context: Context, call: ast.Call) -> bool:
    """In training steps, or whenever a module runs; not where it is done now and then, or for the first time only."""
    place = context.hot_place(call)
    if place is not None:
        return place.every_step
    function = context.tree.function(call)
    owner = context.tree.class_of(function) if function is not None else None
    if function is None or function.name != "forward" or not isinstance(owner, ast.ClassDef):
        return False
    bases = context.call_graph.base_names(owner)
    module = bool(bases & known.MODULES) or any(it.startswith("torch.nn.") for it in bases)
    return module and context.guards.frequency(call, function) == "every_step" and not _first_time_only(context, call)


def _first_time_only(context: Context, call: ast.Call) -> bool:
    """Behind ``if x is None``: a default, or something that is kept."""
    for above in context.tree.ancestors(call):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(above, (ast.If, ast.IfExp)) and any(
            isinstance(it, (ast.Is, ast.IsNot)) for it in ast.walk(above.test)
        ):
            return True
    return False


def _edits(context: Context, copy: Copy, made: ast.Call) -> Change:
    device = '"cuda"' if copy.device is None else context.tree.source(copy.device, limit=1000)
    if isinstance(copy.call.func, ast.Attribute) and copy.call.func.attr != "to":
        if copy.call.func.attr != "cuda":
            device = f'"{copy.call.func.attr}"' if copy.device is None else ""
        elif isinstance(copy.device, ast.Constant) and isinstance(copy.device.value, int):
            device = f'"cuda:{copy.device.value}"'
    if not device or copy.call.lineno != copy.call.end_lineno:
        return ()
    inner = context.tree.source(made, limit=10_000)
    separator = "" if not made.args and not made.keywords else ", "
    text = f"{inner[:-1].rstrip().rstrip(',')}{separator}device={device})"
    return (ReplaceExpression(Span.of(copy.call), Code(text)),)


bad = {
    "in the training loop": """
        import torch

        device = torch.device("cuda")
        for images, labels in loader:
            target = torch.zeros(len(labels), 10).to(device)
            loss = criterion(model(images.to(device)), target)
            loss.backward()
            optimizer.step()
        """,
    "in a module": """
        import torch
        from torch import nn

        class Positions(nn.Module):
            def forward(self, x):
                positions = torch.arange(x.shape[1], dtype=torch.long).to(x.device)
                return x + self.embedding(positions)
        """,
    "random numbers, with cuda": """
        import torch

        def step(model, optimizer, batch):
            noise = torch.randn(batch.shape[0], 100).cuda()
            loss = model(noise, batch).mean()
            loss.backward()
            optimizer.step()

        def train(model, optimizer, loader):
            for batch in loader:
                step(model, optimizer, batch)
        """,
    "a device by its number": """
        import torch

        for batch in loader:
            mask = torch.ones(128, 128).cuda(0)
            loss = model(batch, mask).mean()
            loss.backward()
            optimizer.step()
        """,
}
fixed = {
    "in the training loop": """
        import torch

        device = torch.device("cuda")
        for images, labels in loader:
            target = torch.zeros(len(labels), 10, device=device)
            loss = criterion(model(images.to(device)), target)
            loss.backward()
            optimizer.step()
        """,
    "in a module": """
        import torch
        from torch import nn

        class Positions(nn.Module):
            def forward(self, x):
                positions = torch.arange(x.shape[1], dtype=torch.long, device=x.device)
                return x + self.embedding(positions)
        """,
    "random numbers, with cuda": """
        import torch

        def step(model, optimizer, batch):
            noise = torch.randn(batch.shape[0], 100, device="cuda")
            loss = model(noise, batch).mean()
            loss.backward()
            optimizer.step()

        def train(model, optimizer, loader):
            for batch in loader:
                step(model, optimizer, batch)
        """,
    "a device by its number": """
        import torch

        for batch in loader:
            mask = torch.ones(128, 128, device="cuda:0")
            loss = model(batch, mask).mean()
            loss.backward()
            optimizer.step()
        """,
}
good = {
    "made when it is first needed": """
        import torch

        class Masked(torch.nn.Module):
            def forward(self, x):
                if self.mask is None:
                    self.mask = torch.ones(x.shape[1], x.shape[1]).to(x.device).tril()
                return x * self.mask
        """,
    "made on the device": """
        import torch

        for batch in loader:
            mask = torch.ones(128, 128, device="cuda")
            loss = model(batch, mask).mean()
            loss.backward()
            optimizer.step()
        """,
    "once, before training": """
        import torch

        mask = torch.ones(128, 128).cuda()
        weights = torch.randn(10, 10).to("cuda")
        for batch in loader:
            loss = model(batch, mask).mean()
            loss.backward()
            optimizer.step()
        """,
    "values that the host has": """
        import torch

        for rows in loader:
            batch = torch.tensor(rows).cuda()
            lengths = torch.as_tensor([len(it) for it in rows]).to("cuda")
            loss = model(batch, lengths).mean()
            loss.backward()
            optimizer.step()
        """,
    "to another type": """
        import torch

        for batch in loader:
            mask = torch.ones(128, 128).to(torch.bfloat16)
            loss = model(batch, mask).mean()
            loss.backward()
            optimizer.step()
        """,
    "pinned, and copied on the side": """
        import torch

        for batch in loader:
            buffer = torch.empty(128, pin_memory=True).to("cuda", non_blocking=True)
            loss = model(batch, buffer).mean()
            loss.backward()
            optimizer.step()
        """,
    "made for the first time and kept": """
        import torch
        from torch import nn

        class Masked(nn.Module):
            def forward(self, x):
                if self.mask is None:
                    self.mask = torch.ones(128, 128).to(x.device)
                return x * self.mask
        """,
}
