"""The optimizer's fused form is not in use.

## What it does
Finds `torch.optim.Adam`, `AdamW` and `SGD` without `fused=` in scripts that train on an accelerator. It is silent where
`foreach`, `capturable` or `differentiable` is given, which is a choice of its own, where arguments are not known, where
parameters or gradients may be sparse or complex, for SGD without momentum and weight decay, which is one operation as
it is, and in Lightning modules, whose trainer decides about clipping.

## Why it is slow
An update reads and writes every weight, gradient and moment. By default each arithmetic operation of it is a kernel of
its own over groups of tensors (`foreach`), so that the same numbers travel to memory and back several times.
`fused=True` does the whole update of a group in one kernel.

## Example
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

## Use instead
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

## Fix safety
Unsafe: `fused=True` is put in. Updates are rounded differently in the last places; all parameters have to be floating
point numbers on a device that has the fused form: CUDA, and since torch 2.4 the processor too. SGD has it since 2.3.

## References
- https://docs.pytorch.org/docs/stable/optim.html#algorithms
- https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotlap.source.edits.kinds import Code, SetKeyword, Span
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.tree import word

code = "HL604"
title = "The optimizer's fused form is not in use"
fix_safety: FixSafety = "unsafe"

_OPTIMIZERS = ("torch.optim.Adam", "torch.optim.AdamW", "torch.optim.SGD")
_CHOICES = ("fused", "foreach", "capturable", "differentiable")
_UNFIT = re.compile(r"sparse\s*=\s*True|torch\.c(omplex|float)|CUDAGraph|make_graphed_callables|torch_xla|cpu_offload")


def check(context: Context) -> Iterator[Violation]:
    """Each optimizer that could be fused and whose steps are in the same file, which trains on an accelerator."""
    if not context.updates.steps or _UNFIT.search(context.tree.text):
        return
    for call in context.calls(*_OPTIMIZERS):
        if not all(context.argument(call, it).absent for it in _CHOICES) or context.arguments.has_unknown(call):
            continue
        if (
            _is_one_kernel(context, call)
            or _in_lightning(context, call)
            or not _is_stepped(context, call)
            or not _on_accelerator(context, call)
        ):
            continue
        name = (context.qualified_name(call.func) or "").rpartition(".")[2]
        visible = all(it.arg is not None for it in call.keywords)
        yield Violation(
            call,
            f"`{name}` runs several kernels for every update of the weights; `fused=True` needs one.",
            edits=(SetKeyword(Span.of(call), "fused", Code("True")),) if visible else (),
        )


def _is_one_kernel(context: Context, call: ast.Call) -> bool:
    """SGD without momentum and weight decay only adds the scaled gradients, which ``foreach`` does at once as well."""
    if context.qualified_name(call.func) != "torch.optim.SGD":
        return False
    return context.argument(call, "momentum", 2).absent and context.argument(call, "weight_decay", 4).absent


def _is_stepped(context: Context, call: ast.Call) -> bool:
    """Whether its steps are in this file, and more than one: a single step next to its creation is a test."""
    for step in context.updates.steps:
        if call in context.origins(step.optimizer):
            elsewhere = context.tree.function(step.call) is not context.tree.function(call)
            if elsewhere or context.training.loop_of(step.call) is not None:
                return True
    return False


def _on_accelerator(context: Context, call: ast.Call) -> bool:
    """Whether the weights are put on an accelerator, at least where there is one, or batches next to the optimizer."""
    copies = [it for it in context.devices.copies if it.target == "accelerator"]
    if any(context.tree.function(it.call) is context.tree.function(call) for it in copies):
        return True
    models = _models(context, call.args[0] if call.args else None)
    moved = {word(it.tensor) for it in copies}
    for copy in copies:
        statement = context.tree.statement(copy.call)
        moved |= {word(it) for it in statement.targets} if isinstance(statement, ast.Assign) else set()
    return not models.isdisjoint(moved)


def _models(context: Context, parameters: ast.expr | None, depth: int = 4) -> set[str]:
    """The names of the modules whose ``parameters()`` are in an expression, through names that it uses."""
    found: set[str] = set()
    for it in ast.walk(parameters) if parameters is not None and depth else ():
        match it:
            case ast.Call(func=ast.Attribute(value=model, attr="parameters" | "named_parameters")):
                found.add(word(model))
            case ast.Name(ctx=ast.Load()) if (value := context.value(it)) is not it:
                found |= _models(context, value, depth - 1)
    return found - {""}


def _in_lightning(context: Context, call: ast.Call) -> bool:
    function = context.tree.function(call)
    owner = context.tree.class_of(function) if function is not None else None
    return isinstance(owner, ast.ClassDef) and bool(context.call_graph.base_names(owner) & known.LIGHTNING_MODULES)


bad = {
    "AdamW on an accelerator": """
        import torch

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = Net().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        for batch in loader:
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "SGD, with arguments in a dictionary": """
        import torch
        from torch.optim import SGD

        class Trainer:
            def __init__(self, model):
                self.model = model.cuda()
                options = {"lr": 0.1, "momentum": 0.9}
                self.optimizer = SGD(model.parameters(), nesterov=True, **options)

            def step(self, batch):
                self.model(batch).mean().backward()
                self.optimizer.step()
        """,
    "made by a function": """
        import torch
        from torch import optim

        def make_optimizer(model):
            decay = [it for it in model.parameters() if it.dim() > 1]
            return optim.Adam(
                [{"params": decay, "weight_decay": 0.1}],
                lr=1e-3,
                betas=(0.9, 0.95),
            )

        def train(model, loader):
            model.to("cuda")
            optimizer = make_optimizer(model)
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        """,
}
fixed = {
    "AdamW on an accelerator": """
        import torch

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = Net().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
        for batch in loader:
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "made by a function": """
        import torch
        from torch import optim

        def make_optimizer(model):
            decay = [it for it in model.parameters() if it.dim() > 1]
            return optim.Adam(
                [{"params": decay, "weight_decay": 0.1}],
                lr=1e-3,
                betas=(0.9, 0.95),
                fused=True,
            )

        def train(model, loader):
            model.to("cuda")
            optimizer = make_optimizer(model)
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        """,
}
good = {
    "SGD without momentum": """
        import torch

        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in loader:
            model(batch.cuda()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "fused": """
        import torch

        model = Net().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
        for batch in loader:
            model(batch.cuda()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "another choice": """
        import torch

        model = Net().cuda()
        first = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
        second = torch.optim.Adam(model.head.parameters(), fused=torch.cuda.is_available())
        for batch in loader:
            model(batch.cuda()).mean().backward()
            first.step()
            second.step()
        """,
    "no accelerator": """
        import torch

        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "the accelerator is another function's": """
        import torch

        def train(model, loader):
            optimizer = torch.optim.Adam(model.parameters())
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()

        def evaluate(network, batch):
            return network.cuda()(batch.cuda())
        """,
    "one step, as tests take it": """
        import torch

        def test_update(model, batch):
            model.cuda()
            optimizer = torch.optim.Adam(model.parameters())
            model(batch.cuda()).mean().backward()
            optimizer.step()
        """,
    "arguments that are not known": """
        import torch

        def train(model, loader, **options):
            model.cuda()
            optimizer = torch.optim.AdamW(model.parameters(), **options)
            for batch in loader:
                model(batch.cuda()).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        """,
    "an optimizer of another kind": """
        import torch

        model = Net().cuda()
        optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-4)
        for batch in loader:
            model(batch.cuda()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    "sparse gradients": """
        import torch

        model = torch.nn.Embedding(1000, 10, sparse=True).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in loader:
            model(batch.cuda()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
}
