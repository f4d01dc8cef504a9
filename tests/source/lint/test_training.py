"""Training in the model of a file: kinds of values, training loops, what runs in every step."""

from __future__ import annotations

import ast
from textwrap import dedent, indent

import pytest

from hotlap.source.lint.context import Context

STEP = "loss = model(batch).mean()\nloss.backward()\noptimizer.step()\n"


def context_of(text: str) -> Context:
    return Context(ast.parse(text), text)


def here(context: Context) -> ast.Call:
    """The call of ``here()``."""
    (call,) = (it for it in context.tree.of(ast.Call) if isinstance(it.func, ast.Name) and it.func.id == "here")
    return call


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import torch\nx = torch.zeros(3)", "tensor"),
        ("import torch\nx = torch.zeros(3).cuda() + 1", "tensor"),
        ("import torch\nx = (torch.zeros(3) > 0).sum().item()", "number"),
        ("import torch\nx = torch.zeros(3).shape", None),
        ("import torch\nx = torch.zeros(3).max(0)", "tensors"),
        ("import torch\n_, x = torch.max(y, 1)", "tensor"),
        ("import torch.nn as nn\nx = nn.Linear(1, 2).to(device)", "module"),
        ("import torch.nn as nn\nx = nn.MSELoss()", "criterion"),
        ("import torch.nn as nn\nx = nn.MSELoss()(a, b)", "loss"),
        ("import torch.nn.functional as F\nx = F.mse_loss(a, b)", "loss"),
        ("import torch.nn.functional as F\nx = F.relu(a)", "tensor"),
        ("import torch\nclass Net(torch.nn.Module): ...\nx = Net()", "module"),
        ("import torch\nclass A(torch.nn.Module): ...\nclass B(A): ...\nx = B().cuda()(y)", "output"),
        ("import torch\nx = torch.compile(torch.nn.Linear(1, 1))", "compiled"),
        ("from torch.optim import AdamW\nx = AdamW(p)", "optimizer"),
        ("from torch.optim.lr_scheduler import StepLR\nx = StepLR(o, 1)", "scheduler"),
        ("from torch.utils.data import DataLoader\nx = DataLoader(d)", "loader"),
        ("from torch.utils.data import DataLoader\nfor x in DataLoader(d): pass", "batch"),
        ("from torch.utils.data import DataLoader\nfor i, (x, y) in enumerate(DataLoader(d)): pass", "batch"),
        ("import torch\nx = loss_of(y)\nx.backward()", "loss"),
        ("import torch\nx = loss_of(y)\nx.backward()\nx = x.item()", "number"),
        ("import torch\nx = loss_of(y)\nx.backward()\nx = x.detach()", "tensor"),
        ("import torch\nx = torch.zeros(1) if a else 0", None),
        ("import torch\nx = torch.zeros(1)\nif a:\n    x = None", None),
        ("x = 3 * 4", "number"),
        ("x = unknown()", None),
        ("import torch\ndef f(x: torch.Tensor):\n    read(x)", "tensor"),
        ("import torch\ndef f(x):\n    read(x)\nf(torch.zeros(1))", "tensor"),
        ("import torch\ndef f(x):\n    read(x)\nf(torch.zeros(1))\nf(3)", None),
        ("import torch\ndef make():\n    return torch.zeros(1)\nx = make()", "tensor"),
        ("import torch\nclass A:\n    def __init__(self):\n        self.m = torch.nn.Linear(1, 1)\n"
         "    def f(self):\n        x = self.m\n        read(x)", "module"),
    ],
)  # fmt: skip
def test_kinds(text: str, kind: str | None) -> None:
    context = context_of(text if "read(x)" in text else f"{text}\nread(x)\n")
    (call,) = (it for it in context.tree.of(ast.Call) if isinstance(it.func, ast.Name) and it.func.id == "read")
    assert context.kind(call.args[0]) == kind


@pytest.mark.parametrize(
    ("before", "frequency"),
    [
        ("", "every_step"),
        ("if step % 10 == 0:\n    ", "interval"),
        ("if not step % 10:\n    ", "interval"),
        ("if step % 10:\n    ", "every_step"),
        ("if step % 10 != 0:\n    ", "every_step"),
        ("if rank == 0:\n    ", "every_step"),
        ("if args.rank == 0 and step % 10 == 0:\n    ", "interval"),
        ("if step % 10 == 0 or step == last:\n    ", "interval"),
        ("if rank == 0 or step % 10 == 0:\n    ", "every_step"),
        ("if is_main_process():\n    ", "every_step"),
        ("if scaler is not None:\n    ", "every_step"),
        ("if use_amp:\n    ", "every_step"),
        ("if step == 0:\n    ", "interval"),
        ("if step < 10:\n    ", "unknown"),
        ("if should_log:\n    ", "unknown"),
        ("if logged:\n    ", "interval"),
        ("if time.time() - last > 10:\n    ", "unknown"),
        ("if args.debug:\n    ", "unknown"),
        ("if bad:\n    break\n", "every_step"),
        ("if step % 10:\n    continue\n", "interval"),
        ("if step % 10 != 0 or rank != 0:\n    continue\n", "interval"),
        ("for x in xs:\n    ", "every_step"),
        ("step % 10 == 0 and ", "interval"),
        ("x = 1 if step % 10 else ", "interval"),
        ("with torch.no_grad():\n    ", "every_step"),
        ("lambda: ", "every_step"),
    ],
)
def test_how_often_something_runs_in_a_step(before: str, frequency: str) -> None:
    body = f"{STEP}logged = step % 50 == 0\n{before}here()\n"
    context = context_of(f"import torch\nfor step, batch in enumerate(loader):\n{indent(body, '    ')}")
    place = context.hot_place(here(context))
    assert place is not None
    assert place.frequency == frequency


def test_a_branch_that_leaves_the_loop_runs_once() -> None:
    body = f"{STEP}if bad:\n    here()\n    break\n"
    context = context_of(f"for batch in loader:\n{indent(body, '    ')}")
    place = context.hot_place(here(context))
    assert place is not None and place.frequency == "interval"


@pytest.mark.parametrize(
    "text",
    [
        "for epoch in range(3):\n    for batch in loader:\n{step8}    here()",
        "for batch in loader:\n{step4}here()",
        "for batch in loader:\n    score = model(batch)\n    here()",
        "def f():\n    here()\nfor batch in loader:\n{step4}",
        "for batch in loader:\n{step4}else:\n    here()",
        "for batch in here():\n{step4}",
        "def step():\n{step4}    here()",
        "class F:\n    def backward(ctx, g):\n        for x in g:\n            x.backward()\n            here()",
        "for epoch in range(3):\n    scheduler.step()\n    here()",
    ],
)
def test_what_is_not_hot(text: str) -> None:
    context = context_of(text.format(step4=indent(STEP, "    "), step8=indent(STEP, "        ")) + "\n")
    assert context.hot_place(here(context)) is None


@pytest.mark.parametrize(
    "text",
    [
        "while True:\n{step4}    here()",
        "def step(batch):\n{step4}    here()\nfor batch in loader:\n    step(batch)",
        "def f():\n    here()\nfor batch in loader:\n{step4}    f()",
        "class T:\n    def one(self, batch):\n{step8}        here()\n    def all(self):\n"
        "        for b in self.loader:\n            self.one(b)",
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        here()\nmodel = Net().cuda()\n"
        "for batch in loader:\n{step4}",
        "for batch in loader:\n    def closure():\n        model(batch).mean().backward()\n        here()\n"
        "    optimizer.step(closure)",
        "for batch in loader:\n    accelerator.backward(model(batch))\n    here()",
        "for batch in loader:\n    scaler.scale(model(batch)).backward()\n    here()",
        "for n in range(9):\n    for micro in range(4):\n        model(micro).backward()\n    optimizer.step()\n"
        "    here()",
        "import lightning as L\nclass M(L.LightningModule):\n    def training_step(self, batch):\n        here()",
        "import pytorch_lightning as pl\nclass B(pl.LightningModule): ...\nclass M(B):\n"
        "    def training_step(self, batch):\n        here()",
        "for batch in loader:\n    x = [here() for y in batch]\n{step4}",
    ],
)
def test_what_is_hot(text: str) -> None:
    context = context_of(text.format(step4=indent(STEP, "    "), step8=indent(STEP, "        ")) + "\n")
    place = context.hot_place(here(context))
    assert place is not None and place.every_step


def test_a_call_under_an_interval_makes_its_function_guarded() -> None:
    loop = f"for i, batch in enumerate(loader):\n{indent(STEP, '    ')}    if i % 9 == 0:\n        log()\n"
    context = context_of(f"def log():\n    here()\n{loop}")
    place = context.hot_place(here(context))
    assert place is not None and place.frequency == "interval" and place.call is not None


def test_of_several_calls_the_most_frequent_counts() -> None:
    text = dedent(
        """
        def log():
            here()
        for i, batch in enumerate(loader):
            model(batch).backward()
            if i % 9 == 0:
                log()
            log()
        """
    )
    context = context_of(text)
    place = context.hot_place(here(context))
    assert place is not None and place.every_step


def test_withs_and_gradients() -> None:
    text = dedent(
        """
        import torch
        from torch import no_grad
        mode = torch.inference_mode()
        with no_grad():
            a = here_a
        with mode, open("x"):
            b = here_b
        @torch.no_grad()
        def f():
            c = here_c
        d = here_d
        with torch.autocast("cuda"):
            e = here_e
        """
    )
    context = context_of(text)
    names = {it.id: it for it in context.tree.of(ast.Name) if it.id.startswith("here_")}
    off = {name for name, it in names.items() if context.gradients_off(it)}
    assert off == {"here_a", "here_b", "here_c"}
    assert context.inside(names["here_e"], "torch.autocast") is not None
    assert context.inside(names["here_d"], "torch.autocast") is None
