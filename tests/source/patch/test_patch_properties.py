"""Scripts put together from the shapes that people write: a patch of them parses, holds, and changes nothing twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patching import after, facts_of, patch_of

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import Setting
from hotlap.source.patch.make import make_patch

LEVERS = (
    make_setting("channels-last"),
    make_setting("compile", mode="default"),
    make_setting("cpu-threads", threads=1),
    make_setting("fused-optimizer", implementation="fused"),
    make_setting("loader", num_workers=2, persistent_workers=True, prefetch_factor=2),
    make_setting("matmul-precision", precision="medium"),
    make_setting("mixed-precision", dtype="bfloat16"),
)
IMPORTS = (
    "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n",
    "import torch as t\nimport torch\nimport torch.nn as nn\nfrom torch.utils.data import DataLoader, TensorDataset\n",
    '"""Trains."""\nfrom __future__ import annotations\n\nimport torch.nn as nn\nimport torch\n'
    "from torch.utils.data import (\n    DataLoader,\n    TensorDataset,\n)\n",
)
LOADERS = (
    "loader = DataLoader(data, batch_size=4)",
    "loader = DataLoader(data, 4, False, None, None, 0)",
    "WORKERS = 0\nloader = DataLoader(data, num_workers=WORKERS, batch_size=4,)",
    "options = dict(batch_size=4)\nloader = DataLoader(data, **options)",
    "options = {'batch_size': 4}\noptions.update(drop_last=True)\nloader = DataLoader(data, **options)",
    "loader = DataLoader(\n    data,\n    batch_size=4,  # few\n)",
    "def make_loader(n=0):\n    return DataLoader(data, batch_size=4, num_workers=n)\n\n\nloader = make_loader()",
)
MODELS = (
    "model = nn.Conv2d(3, 4, 3)",
    "model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).to('cpu')",
    "if True:\n    model = nn.Conv2d(3, 4, 3)\nelse:\n    model = nn.Conv2d(3, 4, 1)\nmodel = model.to('cpu')",
)
OPTIMIZERS = (
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "optimizer = torch.optim.AdamW(\n    [{'params': model.parameters()}],\n    lr=0.01\n)",
    "options_of = {'lr': 0.1}\noptimizer = torch.optim.SGD(model.parameters(), **options_of)",
)
STEPS = (
    "{i}out = model(x)\n{i}loss = ((out.mean((1, 2, 3)) - y) ** 2).mean()\n{i}optimizer.zero_grad()\n"
    "{i}loss.backward()\n{i}optimizer.step()\n",
    "{i}optimizer.zero_grad(); loss = (model(x).mean((1, 2, 3)) - y).abs().mean(); loss.backward(); optimizer.step()\n",
    "{i}optimizer.zero_grad()\n{i}(model(x).mean((1, 2, 3)) - y).abs().mean().backward()\n{i}optimizer.step()\n",
    "{i}if len(x):\n{i}    loss = (  # far\n{i}        model(x).mean((1, 2, 3)) - y\n{i}    ).abs().mean()\n"
    "{i}    optimizer.zero_grad()\n{i}    loss.backward()\n{i}    optimizer.step()\n",
)
ENDS = "print(repr([round(float(p.detach().double().sum()), 5) for p in model.parameters()]))\n"


def script(random_of: random.Random) -> str:
    """A whole script that trains for some steps, and prints what became of its weights."""
    pick: Callable[[tuple[str, ...]], str] = random_of.choice
    parts = [
        pick(IMPORTS),
        "torch.manual_seed(0)\ndata = TensorDataset(torch.randn(12, 3, 5, 5), torch.randn(12))\n",
        f"{pick(LOADERS)}\n",
        f"{pick(MODELS)}\n",
        f"{pick(OPTIMIZERS)}\n",
    ]
    step = pick(STEPS)
    if random_of.random() < 0.5:
        parts.append("def train():\n    for x, y in loader:\n" + step.replace("{i}", " " * 8) + "\n\ntrain()\n")
    else:
        parts.append("for x, y in loader:\n" + step.replace("{i}", "    "))
    text = "\n".join(parts) + ENDS
    return text if random_of.random() < 0.8 else text.replace("\n    ", "\n\t").replace("\t    ", "\t\t")


def chosen(random_of: random.Random) -> tuple[Setting, ...]:
    return tuple(it for it in LEVERS if random_of.random() < 0.6)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_a_patched_script_parses_and_is_not_patched_again(tmp_path: Path, number: int) -> None:
    random_of = random.Random(number)
    source, wanted = script(random_of), chosen(random_of)
    compile(source, "script", "exec")
    patch = patch_of(tmp_path, source, wanted)
    new = after(patch, source)
    compile(new, "patched", "exec")
    assert {it.lever for it in patch.written} | {it.setting.lever for it in patch.left_out} == {
        it.lever for it in wanted
    }
    again = patch_of(tmp_path, new, patch.written)
    assert not again.left_out
    assert after(again, new) == new


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_levers_that_change_no_number_leave_behaviour_alone(tmp_path: Path, number: int) -> None:
    """Run in this very process, without workers: what is printed is what the unpatched script prints."""
    random_of = random.Random(number)
    source = script(random_of)
    exact = (make_setting("loader", num_workers=0), make_setting("fused-optimizer", implementation="foreach"))
    path = tmp_path / "train.py"
    path.write_text(source)
    seen = facts_of(path)
    facts = msgspec.structs.replace(seen, loaders=tuple(msgspec.structs.replace(it, workers=1) for it in seen.loaders))
    patch = make_patch(
        facts, [(it, find(it.lever).rewrite(facts, it)) for it in exact], script=path, directory=tmp_path
    )
    assert [it.lever for it in patch.written] in ([it.lever for it in exact], ["fused-optimizer"])
    assert after(patch, source) != source
    assert printed(after(patch, source)) == printed(source)


def printed(source: str) -> list[str]:
    said: list[str] = []
    exec(compile(source, "script", "exec"), {"__name__": "__main__", "print": lambda *words: said.append(repr(words))})
    assert said
    return said
