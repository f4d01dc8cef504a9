"""A model is evaluated in training mode.

## What it does
Finds loops that evaluate (over `val_loader` and the like, or in a function such as `evaluate`) in a file that trains,
where neither the function nor any that leads to it calls `model.eval()`. It is silent where the function may be called
from other files, and where every module is defined in the file and none behaves differently in training.

## Why it is wrong
In training mode dropout goes on dropping, and batch normalisation normalises by the batch at hand and takes the
validation data into its running statistics: the score is not the model's, and the model is no longer what was trained.

## Example
    with torch.no_grad():
        for images, labels in val_loader:
            correct += (model(images).argmax(1) == labels).sum()

## Use instead
    model.eval()
    with torch.no_grad():
        for images, labels in val_loader:
            correct += (model(images).argmax(1) == labels).sum()
    model.train()

## Fix safety
Shown only: `model.eval()` before and `model.train()` after the loop change the scores, which is the point.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.eval
- https://docs.pytorch.org/docs/stable/notes/autograd.html#evaluation-mode-nn-module-eval
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, Code, InsertAfter, InsertBefore, Span
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.evaluation import EvaluationLoop
from hotlap.source.lint.model.tree import word

code = "HL351"
title = "A model is evaluated in training mode"
fix_safety: FixSafety = "shown"

# Calls whose names say that they may switch the mode.
_MAY_SWITCH = re.compile(r"(^|_)(eval\w*|infer\w*|freeze|mode)(_|$)", re.IGNORECASE)
# Layers that behave differently in training; what is imported from elsewhere may have any of them.
_DIFFERS = re.compile(
    r"dropout|drop_?path|stochastic_?depth|batch_?norm|instance_?norm|rrelu|transformer|multihead|spectral|self\.training",
    re.IGNORECASE,
)


def check(context: Context) -> Iterator[Violation]:
    """Each evaluation loop that certainly runs in training mode."""
    if not context.training_loops:
        return
    for loop in context.evaluation.loops:
        if loop.named and not _may_be_switched(context, loop) and _mode_matters(context, loop.call.func):
            model = context.tree.source(loop.call.func)
            message = f"`{model}` is evaluated in training mode: no `{model}.eval()` comes before."
            yield Violation(loop.call, message, edits=_around(context, loop))


def _may_be_switched(context: Context, loop: EvaluationLoop) -> bool:
    functions, complete = context.evaluation.leading_to(loop.function)
    if not complete:
        return True
    if any(context.tree.function(it) in functions for it in context.evaluation.mode_switches):
        return True
    reached = set(functions)
    for it in functions:
        if it is not None:
            reached.update(context.evaluation.reached_from(it))
    if any(context.tree.function(it) in reached for it in context.evaluation.mode_switches):
        return True
    calls = (it for it in context.tree.of(ast.Call) if context.tree.function(it) in functions)
    return any(_may_switch(context, it) for it in calls)


def _may_switch(context: Context, call: ast.Call) -> bool:
    """Whether a call of a function outside this file may switch the mode, by its name."""
    if context.callee(call) is not None or (context.qualified_name(call.func) or "").startswith("torch."):
        return False
    return bool(_MAY_SWITCH.search(word(call.func)))


def _mode_matters(context: Context, model: ast.expr) -> bool:
    """Whether the model may behave differently in training, as far as the file shows."""
    owner = context.call_graph.instance_class(model)
    if owner is None:
        made = [context.qualified_name(it.func) or "" for it in context.origins(model)]
        plain = [it.removeprefix("torch.nn.") for it in made if it.startswith("torch.nn.")]
        if not plain or "Sequential" in plain:
            return not plain or bool(_DIFFERS.search(context.tree.text))
        return any(_DIFFERS.search(it) for it in plain)
    return bool(_DIFFERS.search(context.tree.text)) or _has_foreign_parts(context, owner)


def _has_foreign_parts(context: Context, owner: ast.ClassDef) -> bool:
    """Whether a model of this file contains, or derives from, modules that are neither in the file nor in torch."""
    for base in context.call_graph.base_names(owner):
        if not base.startswith("torch.nn."):
            return True
    for call in (it for it in ast.walk(owner) if isinstance(it, ast.Call)):
        name = context.qualified_name(call.func)
        if name is not None and not name.startswith(("torch.", "builtins.", "math.")):
            return True
    return False


def _around(context: Context, loop: EvaluationLoop) -> Change:
    model = context.tree.source(loop.call.func)
    leaves = (ast.Return, ast.Raise, ast.Yield)
    if any(isinstance(it, leaves) for it in ast.walk(loop.node)):
        return ()
    at = Span.of(loop.node)
    return (InsertBefore(at, Code(f"{model}.eval()")), InsertAfter(at, Code(f"{model}.train()")))


bad = {
    "between two epochs": """
        import torch
        from torchvision.models import resnet50

        model = resnet50()
        for epoch in range(10):
            for images, labels in train_loader:
                criterion(model(images), labels).backward()
                optimizer.step()
            with torch.no_grad():
                for images, labels in val_loader:
                    correct += (model(images).argmax(1) == labels).sum()
        """,
    "in a function": """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.drop = nn.Dropout(0.5)
                self.out = nn.Linear(10, 2)

            def forward(self, x):
                return self.out(self.drop(x))

        @torch.no_grad()
        def validate(model, loader):
            total = 0
            for x, y in loader:
                total += (model(x).argmax(1) == y).sum()
            return total

        def main():
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for epoch in range(3):
                model.train()
                for x, y in loader:
                    nn.functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
                validate(model, loader)

        main()
        """,
    "as a method": """
        import torch
        from models import Net

        class Runner:
            def __init__(self):
                self.model = Net()

            def fit(self, loader, test_loader):
                for batch in loader:
                    self.model(batch).mean().backward()
                    self.optimizer.step()
                self.score(test_loader)

            def score(self, test_loader):
                with torch.inference_mode():
                    for batch in test_loader:
                        self.scores.append(self.model(batch))

            def parameters(self):
                return self.model.parameters()

        runner = Runner()
        runner.fit(loader, test_loader)
        """,
}
fixed = {
    "as a method": """
        import torch
        from models import Net

        class Runner:
            def __init__(self):
                self.model = Net()

            def fit(self, loader, test_loader):
                for batch in loader:
                    self.model(batch).mean().backward()
                    self.optimizer.step()
                self.score(test_loader)

            def score(self, test_loader):
                with torch.inference_mode():
                    self.model.eval()
                    for batch in test_loader:
                        self.scores.append(self.model(batch))
                    self.model.train()

            def parameters(self):
                return self.model.parameters()

        runner = Runner()
        runner.fit(loader, test_loader)
        """,
}
good = {
    "in evaluation mode": """
        import torch
        from models import Net

        model = Net()
        for batch in train_loader:
            model(batch).mean().backward()
            optimizer.step()
        model.eval()
        for batch in val_loader:
            scores.append(model(batch))
        """,
    "switched by whoever calls": """
        import torch
        from models import Net

        def validate(model, val_loader):
            for batch in val_loader:
                scores.append(model(batch))

        def main():
            model = Net()
            for batch in train_loader:
                model(batch).mean().backward()
                optimizer.step()
            model.eval()
            validate(model, val_loader)

        main()
        """,
    "by a flag": """
        import torch
        from models import Net

        def run(model, loader, training):
            model.train(training)
            for batch in loader:
                loss = model(batch).mean()
                if training:
                    loss.backward()
                    optimizer.step()

        run(Net(), train_loader, True)
        run(Net(), val_loader, False)
        """,
    "who calls it is not known": """
        import torch

        def train(model, loader, optimizer):
            model.train()
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()

        def validate(model, val_loader):
            for batch in val_loader:
                scores.append(model(batch))
        """,
    "nothing in the model depends on the mode": """
        import torch
        from torch import nn

        model = nn.Linear(10, 2)
        for x, y in train_loader:
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, y in val_loader:
                correct += (model(x).argmax(1) == y).sum()
        """,
    "another function puts it into evaluation mode": """
        import torch
        from helpers import eval_mode
        from models import Net

        model = Net()
        for batch in train_loader:
            model(batch).mean().backward()
            optimizer.step()
        with eval_mode(model):
            for batch in val_loader:
                scores.append(model(batch))
        """,
}
