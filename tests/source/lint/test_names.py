"""Names in the model of a file: imports, aliases, what reaches a use."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from hotlap.source.lint.context import Context


def context_of(text: str) -> Context:
    text = dedent(text)
    return Context(ast.parse(text), text)


def last_call(context: Context) -> ast.Call:
    return list(context.tree.of(ast.Call))[-1]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch\ntorch.cat(x)", "torch.cat"),
        ("import torch as t\nt.nn.functional.relu(x)", "torch.nn.functional.relu"),
        ("import torch.nn.functional as F\nF.relu(x)", "torch.nn.functional.relu"),
        ("import torch.nn.functional\ntorch.nn.functional.relu(x)", "torch.nn.functional.relu"),
        ("from torch import nn\nnn.Linear(1, 2)", "torch.nn.Linear"),
        ("from torch.nn import Linear as L\nL(1, 2)", "torch.nn.Linear"),
        ("import torch\namp = torch.cuda.amp\namp.GradScaler()", "torch.cuda.amp.GradScaler"),
        ("import torch\namp = torch.cuda.amp\nS = amp.GradScaler\nS()", "torch.cuda.amp.GradScaler"),
        ("from torch.cuda import amp\ndef f():\n    amp.autocast()", "torch.cuda.amp.autocast"),
        ("from torch.cuda.amp.grad_scaler import GradScaler\nGradScaler()", "torch.cuda.amp.GradScaler"),
        ("from torch.amp import autocast\nautocast('cuda')", "torch.autocast"),
        ("from torch.utils.data.dataloader import DataLoader\nDataLoader(x)", "torch.utils.data.DataLoader"),
        ("from torch.nn.modules.loss import CrossEntropyLoss\nCrossEntropyLoss()", "torch.nn.CrossEntropyLoss"),
        ("from torch.nn.parallel import DataParallel\nDataParallel(m)", "torch.nn.DataParallel"),
        ("from torch.optim.adamw import AdamW\nAdamW(p)", "torch.optim.AdamW"),
        ("print(x)", "builtins.print"),
        ("def print(x): ...\nprint(x)", None),
        ("from mine import print\nprint(x)", "mine.print"),
        ("from . import torch\ntorch.cat(x)", "..torch.cat"),
        ("import torch\nif a:\n    torch = None\ntorch.cat(x)", None),
        ("import torch\ndef f(torch):\n    torch.cat(x)", None),
        ("try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from torch.cuda.amp import GradScaler\n"
         "GradScaler()", None),
        ("f(x)", None),
    ],
)  # fmt: skip
def test_full_names(text: str, name: str | None) -> None:
    context = context_of(text)
    found = context.qualified_name(last_call(context).func)
    assert found == (name if name != "..torch.cat" else ".torch.cat")


def test_several_names_are_all_known() -> None:
    context = context_of(
        """
        try:
            from torch.amp import GradScaler
        except ImportError:
            from torch.cuda.amp import GradScaler
        GradScaler()
        """
    )
    names = context.names.qualified_names(last_call(context).func)
    assert names == {"torch.amp.GradScaler", "torch.cuda.amp.GradScaler"}
    assert list(context.calls("torch.amp.GradScaler")) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = 1\nx = 2\nuse(x)", [2]),
        ("x = 1\nif a:\n    x = 2\nuse(x)", [1, 3]),
        ("x = 1\nif a:\n    x = 2\n    use(x)", [3]),
        ("x = 1\nwith a:\n    x = 2\nuse(x)", [2 + 1]),
        ("x = 1\nfor i in a:\n    use(x)\n    x = 2", [1, 4]),
        ("x = 1\nfor i in a:\n    x = 2\n    use(x)\n    x = 3", [3]),
        ("for x in a:\n    use(x)", [1]),
        ("x = 1\nfor x in a:\n    pass\nuse(x)", [1, 2]),
        ("x = 1\ndef f():\n    use(x)\nx = 2", [4]),
        ("def f(x):\n    use(x)", [1]),
        ("def f(x):\n    x = 2\n    use(x)", [2]),
        ("def f(x):\n    if x:\n        x = 2\n    use(x)", [1, 3]),
        ("x = 1\ntry:\n    x = 2\nexcept E:\n    x = 3\nuse(x)", [1, 3, 5]),
        ("x = 1\nx = use(x)", [1]),
        ("x = 1\ndef f():\n    global x\n    x = 2\nuse(x)", [1, 4]),
        ("x = 1\nclass A:\n    x = 2\n    def f(self):\n        use(x)", [1]),
        ("x = 1\n[use(x) for x in a]", [2]),
        ("while a:\n    if b:\n        x = 1\n        continue\n    use(x)", [3]),
    ],
)
def test_what_reaches_a_use(text: str, lines: list[int]) -> None:
    context = context_of(text)
    (call,) = (it for it in context.tree.of(ast.Call) if isinstance(it.func, ast.Name) and it.func.id == "use")
    assert isinstance(call.args[0], ast.Name)
    found = sorted(it.node.lineno for it in context.bindings(call.args[0]))  # type: ignore[attr-defined]
    assert found == lines


@pytest.mark.parametrize(
    ("call", "state", "value"),
    [
        ("f(a=1)", "given", 1),
        ("f(0, 1)", "given", 1),
        ("f(0)", "absent", None),
        ("f(*xs)", "unknown", None),
        ("f(*xs, a=1)", "given", 1),
        ("f(**unknown)", "unknown", None),
        ("f(**{'a': 1})", "given", 1),
        ("f(**{'b': 1})", "absent", None),
        ("f(**dict(a=1))", "given", 1),
        ("f(**{**{'a': 1}, 'b': 2})", "given", 1),
        ("kw = {'a': 1}\nf(**kw)", "given", 1),
        ("kw = dict(b=1)\nf(**kw)", "absent", None),
        ("kw = {'b': 1}\nkw['a'] = 2\nf(**kw)", "unknown", None),
        ("kw = {'b': 1}\nkw['c'] = 2\nf(**kw)", "absent", None),
        ("kw = {'b': 1}\nkw.update(more)\nf(**kw)", "unknown", None),
        ("kw = {'b': 1}\nfill(kw)\nf(**kw)", "unknown", None),
        ("kw = {'b': 1}\nif c:\n    kw = {'a': 1}\nf(**kw)", "unknown", None),
        ("kw = {'a': 1} if c else {}\nf(**kw)", "unknown", None),
        ("n = 1\nf(a=n)", "given", 1),
        ("f(a=args.n)", "given", ...),
        ("f(a=-1)", "given", -1),
    ],
)  # fmt: skip
def test_arguments(call: str, state: str, value: object) -> None:
    context = context_of(call)
    (found,) = (it for it in context.tree.of(ast.Call) if isinstance(it.func, ast.Name) and it.func.id == "f")
    argument = context.argument(found, "a", 1)
    assert argument.state == state
    if state == "given":
        assert context.constant(argument.value) == value
