"""Rules about data, precision and optimizers: what their conformance suite cannot show."""

from __future__ import annotations

import ast
import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from hotlap.source.lint.api import FixSafety, Rule, all_rules
from hotlap.source.lint.check import check
from hotlap.source.lint.context import Context
from hotlap.source.lint.fix import fix
from hotlap.source.lint.model.loaders import Loaders

ALL_GRADES: tuple[FixSafety, ...] = ("safe", "unsafe", "shown")
DEPRECATED_AMP = all_rules()["HL601"]
MINE = [it for code, it in all_rules().items() if code in {f"HL{it}" for it in (*range(101, 106), *range(301, 306))}]
MINE += [it for code, it in all_rules().items() if code in {f"HL{it}" for it in range(601, 606)}]


# -- old and new names of mixed precision make the same objects ---------------------------------------

IMPORTS = {
    "import torch": "torch.cuda.amp.",
    "import torch\nfrom torch.cuda.amp import GradScaler, autocast": "",
    "import torch\nfrom torch.cuda import amp": "amp.",
    "import torch\nimport torch.cuda.amp as mixed": "mixed.",
    "import torch.cuda.amp": "torch.cuda.amp.",
}
AUTOCASTS = (
    "()", "(False)", "(True, torch.bfloat16)", "(False, torch.float16, False)", "(dtype=torch.bfloat16)",
    "(enabled=False, cache_enabled=False)", "(True, dtype=torch.bfloat16)", "(**{'enabled': False})",
    "(\n    enabled=False,  # not yet\n    dtype=torch.bfloat16,\n)",
)  # fmt: skip
SCALERS = (
    "()", "(1024.0)", "(1024.0, 3.0, 0.25, 100, False)", "(init_scale=2.0, enabled=False)", "(512.0, enabled=False)",
    "(\n    growth_interval=7,\n)",
)  # fmt: skip
CALLS = [*(("autocast", it) for it in AUTOCASTS), *(("GradScaler", it) for it in SCALERS)]


@pytest.mark.parametrize("imports", IMPORTS)
@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=lambda it: str(it))
def test_the_new_name_makes_the_same_object(imports: str, name: str, arguments: str) -> None:
    text = f"{imports}\n\nmade = {IMPORTS[imports]}{name}{arguments}\n"
    fixed = fix(text, [DEPRECATED_AMP], ["safe"])
    assert fixed.counts == {"HL601": 1}
    assert ".cuda.amp." not in fixed.text.replace("import torch.cuda.amp\n", "")
    assert state(fixed.text) == state(text)


def state(text: str) -> dict[str, object]:
    """The parts of the object that a text creates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names: dict[str, Any] = {}
        exec(compile(text, "example", "exec"), names)
    made = names["made"]
    return {key: value for key, value in vars(made).items() if isinstance(value, (bool, int, float, str, torch.dtype))}


def test_the_new_names_do_not_warn() -> None:
    text = fix(DEPRECATED_AMP.bad["decorators"], [DEPRECATED_AMP], ["safe"]).text
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        warnings.filterwarnings("ignore", "User provided device_type", UserWarning)
        exec(compile(text, "example", "exec"), {})


# -- fixes of several rules in one file ---------------------------------------------------------------

TROUBLED = """
import torch
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


def main(args):
    device = torch.device("cuda")
    model = Net().to(device)
    images = ImageFolder("train", transform)
    loader = DataLoader(images, 64, pin_memory=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scaler = GradScaler()
    for epoch in range(args.epochs):
        for step, (images, labels) in enumerate(loader):
            images, labels = images.to(device), labels.to(device)
            with autocast():
                loss = torch.nn.functional.cross_entropy(model(images, torch.zeros(64, 8).to(device)), labels)
                scaler.scale(loss).backward()
            if (step + 1) % args.accumulate == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=False)


if __name__ == "__main__":
    main(parse())
"""
REPAIRED = """
import torch
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


def main(args):
    device = torch.device("cuda")
    model = Net().to(device)
    images = ImageFolder("train", transform)
    loader = DataLoader(images, 64, pin_memory=True, num_workers=4, persistent_workers=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    scaler = GradScaler("cuda")
    for epoch in range(args.epochs):
        for step, (images, labels) in enumerate(loader):
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            with autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(images, torch.zeros(64, 8, device=device)), labels)
            scaler.scale(loss / args.accumulate).backward()
            if (step + 1) % args.accumulate == 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()


if __name__ == "__main__":
    main(parse())
"""


def test_no_fix_drops_another() -> None:
    fixed = fix(TROUBLED, MINE, ALL_GRADES)
    assert fixed.text == REPAIRED
    assert [hit.violation.message for hit in fixed.hits] == []


@pytest.mark.parametrize(("one", "other"), [*itertools.permutations(("HL305", "HL304", "HL601"), 2)])
def test_the_order_of_fixes_does_not_matter(one: str, other: str) -> None:
    first = fix(TROUBLED, [all_rules()[one]], ALL_GRADES).text
    assert (
        fix(first, MINE, ALL_GRADES).text
        == REPAIRED
        == fix(fix(first, rules(other), ALL_GRADES).text, MINE, ALL_GRADES).text
    )


def rules(*codes: str) -> Sequence[Rule]:
    return [all_rules()[it] for it in codes]


# -- which loader made a batch ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loop",
    [
        "for batch in loader: use(batch)",
        "for step, batch in enumerate(tqdm(loader), 1): use(batch)",
        "for (x, y), batch in zip(other, loader): use(batch)",
        "bar = tqdm(loader)\nfor batch in bar: use(batch)",
        "batch = next(iter(loader))\nuse(batch)",
        "for whole in loader:\n    first, batch = whole\n    use(batch)",
        "for whole in loader: use(whole['x'].values)",
        "def run(it):\n    for batch in it: use(batch)\nrun(loader)",
        "def both():\n    return 1, loader\na, b = both()\nfor batch in b: use(batch)",
        "it = {'train': loader}\nfor batch in it['train']: use(batch)",
    ],
)
def test_a_batch_is_followed_to_its_loader(loop: str) -> None:
    loaders, argument = followed(f"loader = DataLoader(data)\n{loop}\n")
    assert loaders.of_batch(argument) == {loaders.all[0]}


@pytest.mark.parametrize(
    "loop",
    [
        "for batch in elsewhere(loader): use(batch)",
        "for batch in loader: use(batch * 2)",
        "for batch in loader if test else other: use(batch)",
        "for step, batch in enumerate(loader): use(step)",
        "loader = wrap(loader)\nfor batch in loader: use(batch)",
        "def run(it):\n    for batch in it: use(batch)\nrun(loader)\nrun(other)",
    ],
)
def test_a_batch_that_may_come_from_elsewhere_is_unknown(loop: str) -> None:
    loaders, argument = followed(f"loader = DataLoader(data)\n{loop}\n")
    assert loaders.of_batch(argument) == frozenset()


def followed(text: str) -> tuple[Loaders, ast.expr]:
    """The loaders of a text, and what its ``use(...)`` is given."""
    text = f"from torch.utils.data import DataLoader\nfrom tqdm import tqdm\n{text}"
    context = Context(ast.parse(text), text)
    (use,) = (it for it in context.tree.of(ast.Call) if isinstance(it.func, ast.Name) and it.func.id == "use")
    return context.loaders, use.args[0]


# -- messages -----------------------------------------------------------------------------------------


def test_a_place_is_reported_once() -> None:
    _, hits = check(TROUBLED, MINE)
    places = [(hit.rule.code, id(hit.violation.node)) for hit in hits]
    assert len(places) == len(set(places))
