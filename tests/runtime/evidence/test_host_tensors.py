"""Which lines copy or read what they have made on the host, as the user's source shows it."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from hotlap.records import CallSite
from hotlap.runtime.evidence.callers import Caller
from hotlap.runtime.evidence.host_tensors import HostTensors

MADE = {
    "a factory": "torch.zeros(3).to(device)",
    "cuda": "torch.rand(2, 2).cuda()",
    "methods in between": "torch.arange(4).unsqueeze(0).float().to(device)",
    "numbers in the source": "torch.tensor([[1.0, -2.0], [3.0, 4.0 / 2]]).to(device)",
    "a function of torch's upon it": "torch.tril(torch.ones(4, 4)).to(device)",
    "arithmetic with numbers": "(2 * torch.rand(3) - 1).to(device)",
    "an index": "torch.eye(3)[0].to(device)",
    "over several lines": "torch.zeros(\n    3,\n).to(\n    device\n)",
    "within a call": "len(torch.zeros(3).to(device))",
    "two of them": "(torch.zeros(3).to(device), torch.ones(3).to(device))",
    "another name for torch": "import torch as th\nth.zeros(3).to(device)",
    "another name for the function": "from torch import zeros as nothing\nnothing(3).to(device)",
    "the line before": "noise = torch.randn(3)\nnoise = noise.to(device)",
    "with a type": "noise: torch.Tensor = torch.randn(3)\nnoise.to(device)",
    "in the same round of a loop": "for _ in range(2):\n    mask = torch.ones(3)\n    mask.to(device)",
    "in a function": "def step():\n    mask = torch.ones(3)\n    if mask is not None:\n        mask.to(device)\nstep()",
}

DATA = {
    "what a function was given": "def send(x):\n    x.to(device)\nsend(torch.zeros(3))",
    "the list's numbers": "torch.tensor(values).to(device)",
    "an array": "torch.from_numpy(array).to(device)",
    "a method's result": "source.sample().to(device)",
    "where it is wanted": "torch.zeros(3, device='cpu').to(device)",
    "perhaps where it is wanted": "torch.zeros(3, **options).to(device)",
    "data and a mask": "(torch.ones(3) * batch).to(device)",
    "another's zeros": "other.zeros(3).to(device)",
    "made before the loop": "mask = torch.ones(3)\nfor _ in range(2):\n    mask.to(device)",
    "made in one branch only": "mask = batch\nif values is None:\n    mask = torch.ones(3)\nmask.to(device)",
    "the other branch": "if values is None:\n    batch = torch.ones(3)\nelse:\n    batch.to(device)",
    "the name of a comprehension": "x = torch.zeros(3)\n[x.to(device) for x in [batch]]",
    "the name of a loop": "x = torch.zeros(3)\nfor x in [batch]:\n    x.to(device)",
    "replaced since": "x = torch.zeros(3)\nx = batch\nx.to(device)",
    "unpacked": "x, y = torch.zeros(2), batch\ny.to(device)",
}


class _Fake:
    """Replaces torch's module and its tensors, and records from which instruction each copy was called."""

    def __init__(self) -> None:
        self.copies: list[Caller] = []

    def to(self, *args: object) -> _Fake:
        frame = sys._getframe(1)
        site = CallSite(role="call", file=frame.f_code.co_filename, line=frame.f_lineno)
        self.copies.append(Caller(site, True, False, (frame.f_code, frame.f_lasti)))
        return self

    cuda = to

    def __getattr__(self, name: str) -> object:
        return self

    def __call__(self, *args: object, **options: object) -> _Fake:
        return self

    def __getitem__(self, index: object) -> _Fake:
        return self

    def __len__(self) -> int:
        return 1

    def __mul__(self, other: object) -> _Fake:
        return self

    __rmul__ = __sub__ = __mul__


def copies_of(source: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The result for each copy that this source makes when it runs, line by line as Python runs it."""
    fake = _Fake()
    module = types.ModuleType("torch")
    module.__getattr__ = lambda name: fake  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "torch", module)
    file = path / "train.py"
    file.write_text("import torch\n" + source)
    names = dict.fromkeys(("other", "batch", "source", "array", "values"), fake)
    exec(compile(file.read_text(), str(file), "exec"), {**names, "device": "cuda", "options": {}})
    tensors = HostTensors()
    return [tensors.made_for(it, "copied") for it in fake.copies]


@pytest.mark.parametrize("source", MADE.values(), ids=MADE)
def test_what_was_made_to_be_copied(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = copies_of(source, tmp_path, monkeypatch)
    assert found and all(found)


@pytest.mark.parametrize("source", DATA.values(), ids=DATA)
def test_what_may_be_data(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = copies_of(source, tmp_path, monkeypatch)
    assert found and not any(found)


def test_unreadable_sources_say_nothing() -> None:
    code = compile("x.to(d)", "/nowhere/train.py", "exec")
    tensors = HostTensors()
    assert not tensors.made_for(Caller(None, True, False, (code, 0)), "copied")
    assert not tensors.made_for(Caller(None, True, False), "copied")
    assert not tensors.made_for(Caller(None, False, False, (code, 0)), "copied")
