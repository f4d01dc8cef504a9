"""Scripts composed of patterns: in every combination, fixing keeps them valid Python, ends, and changes no result."""

from __future__ import annotations

import ast
import warnings
from textwrap import indent
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotlap.source.lint.api import FixSafety, all_rules
from hotlap.source.lint.check import Unreadable, check
from hotlap.source.lint.fix import fix
from hotlap.source.lint.suppressions import Suppressions

# Loaders would start worker processes; compiled models would compile.
UNRUN = ("HL1", "HL4", "HL7")
RULES = list(all_rules().values())
RUN_RULES = [it for it in RULES if not it.code.startswith(UNRUN)]

IMPORTS = (
    "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n",
    "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n",
    "import torch, torch.nn as nn  # both\nF = nn.functional\n",
)
SET_UPS = (
    "",
    "torch.autograd.set_detect_anomaly(True)\n",
    "torch.backends.cudnn.deterministic = True\n",
    "from torch.cuda.amp import GradScaler\nscaler = GradScaler(enabled=False)\n",
    "amp = torch.cuda.amp\n",
    "def note(value):\n    kept.append(value)\n\n\n",
)
OPTIMIZERS = (
    "torch.optim.SGD(model.parameters(), lr=0.1)",
    "torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.0)",
    "torch.optim.Adam(params=model.parameters(), **{'lr': 0.01})",
)
LOSSES = (
    "loss = F.mse_loss(model(x), y)\n",
    "loss = (model(x) - y).square().mean()\n",
    "with torch.autocast('cpu', enabled=False):\n    loss = F.mse_loss(model(x), y)\n",
    "output = model(x); loss = nn.MSELoss()(output, y)\n",
)
STEPS = (
    "total += loss\n",
    "total = total + loss * 2\n",
    "losses.append(loss)\n",
    "losses.append(loss); total += loss\n",
    "torch.cuda.empty_cache()\n",
    "if rank == 0:\n    torch.cuda.empty_cache()\n",
    "if rank == 0:\n    # nothing else\n    torch.cuda.empty_cache(); total += loss\n",
    "count += loss.item()\n",
    "if step % 2 == 0:\n    count += float(loss)\n",
    "with torch.autograd.detect_anomaly():\n    F.mse_loss(model(x), y).backward()\n",
    "for value in x[0]:\n    count += (value * 2).item()\n",
    "total += (\n    loss  # with its graph\n    + 1\n)\n",
    "gathered = torch.cat([gathered, loss.detach().reshape(1)])\n",
    "optimizer.zero_grad(set_to_none=False)\n",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    "note = [total, losses]  # noqa\n",
    "torch.cuda.empty_cache()  # hotlap: ignore\n",
    "'''a text\nof two lines'''\n",
)
SCRIPT = """\
{imports}
{set_up}
torch.manual_seed(0)
kept, losses, total, count, rank = [], [], 0.0, 0.0, 0
gathered = torch.empty(0)
model = nn.Linear(3, 1)
optimizer = {optimizer}
batches = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(3)]


def train():
    global total, count, gathered
    for step, (x, y) in enumerate(batches):
        optimizer.zero_grad()
{loss}
        loss.backward()
        optimizer.step()
{steps}

train()
"""


@st.composite
def scripts(draw: st.DrawFn) -> str:
    steps = draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6))
    return SCRIPT.format(
        imports=draw(st.sampled_from(IMPORTS)),
        set_up=draw(st.sampled_from(SET_UPS)),
        optimizer=draw(st.sampled_from(OPTIMIZERS)),
        loss=indent(draw(st.sampled_from(LOSSES)), " " * 8),
        steps=indent("".join(steps), " " * 8),
    )


def results(text: str) -> dict[str, float]:
    """What the script computed."""
    names: dict[str, Any] = {"__name__": "script"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anomaly, deterministic = torch.is_anomaly_enabled(), torch.backends.cudnn.deterministic
        try:
            exec(compile(text, "script", "exec"), names)
        finally:
            torch.autograd.set_detect_anomaly(anomaly)
            torch.backends.cudnn.deterministic = deterministic
    numbers = [names["total"], names["count"], *names["losses"]]
    shown = {f"number {index}": float(torch.as_tensor(it).detach()) for index, it in enumerate(numbers)}
    tensors = [*names["model"].parameters(), names["gathered"]]
    values = [it for tensor in tensors for it in tensor.detach().flatten().tolist()]
    return shown | {f"value {index}": it for index, it in enumerate(values)}


def fixing_is_sound(text: str) -> None:
    for grades in (("safe",), ("safe", "unsafe")):
        asked: tuple[FixSafety, ...] = grades  # type: ignore[assignment]
        fixed = fix(text, RUN_RULES, asked)
        ast.parse(fixed.text)
        assert fix(fixed.text, RUN_RULES, asked).text == fixed.text
        left = [hit for hit in fixed.hits if hit.violation.edits and hit.rule.fix_safety in asked]
        assert [hit.violation.message for hit in left] == []
        assert results(fixed.text) == pytest.approx(results(text), rel=1e-5, abs=1e-6)


FUZZED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@given(scripts())
@settings(FUZZED, max_examples=20)
def test_fixing_composed_scripts(text: str) -> None:
    fixing_is_sound(text)


@pytest.mark.slow
@pytest.mark.timeout(900)
@given(scripts())
@settings(FUZZED, max_examples=150)
def test_fixing_many_composed_scripts(text: str) -> None:
    fixing_is_sound(text)


EXAMPLES = sorted({text for rule in RULES for text in (*rule.bad.values(), *rule.good.values())})


@given(st.lists(st.sampled_from(EXAMPLES), min_size=1, max_size=4))
@settings(FUZZED, max_examples=40)
def test_checking_examples_side_by_side(texts: list[str]) -> None:
    """Rules on unrelated code, on names that mean two things, and on several loops."""
    joined = "\n".join(texts)
    _, hits = check(joined, RULES)
    assert hits == sorted(hits, key=lambda it: (it.violation.node.lineno, it.violation.node.col_offset))  # type: ignore[attr-defined]


@given(st.lists(st.sampled_from(EXAMPLES), min_size=1, max_size=3), st.randoms(use_true_random=False))
@settings(FUZZED, max_examples=60)
def test_checking_damaged_examples(texts: list[str], drawn: Any) -> None:
    """Missing lines: what still parses is checked without an error, the rest is reported as invalid Python."""
    lines = "\n".join(texts).split("\n")
    for _ in range(drawn.randint(0, 5)):
        lines.pop(drawn.randrange(len(lines)))
    text = "\n".join(lines) or "\n"
    try:
        check(text, RULES)
        Suppressions(text)
    except Unreadable:
        pass


@given(st.text(alphabet="#: noqa,HL501hotlapignre[]-file\n'\"\\", max_size=80))
@settings(FUZZED, max_examples=80)
def test_comments_are_read_whatever_they_say(text: str) -> None:
    Suppressions(text)
