"""Training functions as scripts: of files, of notebooks, and what cannot be called in another process."""

from __future__ import annotations

import functools
import importlib
import linecache
import math
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hotlap
from hotlap.api.functions import script_of_function


class Notebook:
    """Cells are executed as a kernel does: in ``__main__``, from files that do not exist."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", self.module)
        self.cells = 0

    def run(self, source: str) -> None:
        self.cells += 1
        name = f"<cell {self.cells}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), vars(self.module))

    def __getitem__(self, name: str) -> Any:
        return vars(self.module)[name]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Notebook]:
    monkeypatch.chdir(tmp_path)
    made = Notebook(monkeypatch)
    yield made
    for number in range(1, made.cells + 1):
        linecache.cache.pop(f"<cell {number}>", None)


def output_of(script: Path, *, elsewhere: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(script)], cwd=elsewhere, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def test_a_function_of_a_notebook_takes_with_it_what_it_uses(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def half(it):\n    return it / 2\n")
    sys.path.insert(0, str(tmp_path))
    try:
        notebook.run(
            "import math as m, os.path\nfrom collections import OrderedDict as Ordered\nimport beside\nRATE = 0.5\n"
        )
        notebook.run("from beside import half\nNAMES = {'a': [1, 2]}\nunused = object()\n")
        notebook.run(
            "class Base:\n    def size(self):\n        return helper() + RATE\n\n"
            "class Net(Base):\n    def two(self): return 2\n"
        )
        notebook.run("def double(f):\n    return f\n\n@double\ndef helper(of=NAMES):\n    return len(of) + half(4)\n")
        notebook.run(
            "def train(epochs=2):\n    local = [RATE for RATE in (3,)]\n"
            "    print(Net().size(), m.pi, os.path.sep, Ordered(), beside.half(epochs), local)\n"
        )
        notebook.module.__dict__["RATE"] = 1.5  # as changed by a later cell
        script = script_of_function(notebook["train"], tmp_path / "kept")
        assert script_of_function(notebook["train"], tmp_path / "kept") == script
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("beside", None)
    assert output_of(script, elsewhere=Path("/")) == f"4.5 {math.pi} / OrderedDict() 1.0 [3]\n"
    assert "unused" not in script.read_text()


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("model = object()\ndef train():\n    model", "train uses model, a builtins.object of this process"),
        ("rows = [object()]\ndef part():\n    rows\ndef train():\n    part()", "part uses rows, a builtins.list"),
        ("limit = float('inf')\ndef train():\n    limit", "train uses limit"),
        (
            "def make():\n    it = 3\n    def train():\n        return it\n    return train\ntrain = make()",
            "a closure over it",
        ),
        ("def make():\n    def train(): pass\n    return train\ntrain = make()", "defined inside of something else"),
        ("train = lambda: None", "A lambda has no name"),
        ("def train(epochs, *more): pass", "needs the arguments epochs"),
        ("async def train(): pass", "coroutine or generator"),
        ("def train():\n    yield 1", "coroutine or generator"),
        ("class It:\n    def go(self): pass\ntrain = It().go", "It.go is a method"),
        ("text = 'x' * 20_000\ndef train():\n    text", "too long to be written down"),
        ("def real(): pass\nother = real\ndef train():\n    other()", "another name for real"),
    ],
)
def test_what_exists_in_this_process_alone_is_refused(notebook: Notebook, cell: str, message: str) -> None:
    notebook.run(cell)
    with pytest.raises(hotlap.HotlapError, match=message):
        script_of_function(notebook["train"], Path("kept"))
    assert not Path("kept").exists()


def test_a_function_without_source_is_refused(notebook: Notebook) -> None:
    exec(compile("def train(): pass", "<gone>", "exec"), vars(notebook.module))
    with pytest.raises(hotlap.HotlapError, match="the source of train is not known"):
        script_of_function(notebook["train"], Path("kept"))


@pytest.mark.parametrize("made", [functools.partial(print, 1), print, int])
def test_other_callables_are_refused(made: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(hotlap.HotlapError, match="Write a function without parameters"):
        script_of_function(made, tmp_path)


def test_a_function_of_a_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "training.py").write_text(
        "import os\nSTATE = object()\ndef train():\n    print(STATE is not None, __name__)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("mine.training")
    train = module.train
    script = script_of_function(train, tmp_path / "kept")
    assert output_of(script, elsewhere=Path("/")) == "True mine.training\n"
    monkeypatch.setattr(module, "train", print)
    with pytest.raises(hotlap.HotlapError, match="another object"):
        script_of_function(train, tmp_path)


def script_of() -> None:
    """Only its code is used."""


def test_a_function_of_the_running_script_is_imported_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(
        "import sys\nfrom pathlib import Path\nfrom hotlap.api.functions import script_of_function\n"
        "def train():\n    print('trained in', __name__)\n"
        "if __name__ == '__main__':\n    print(script_of_function(train, Path(sys.argv[1])))\n"
    )
    done = subprocess.run(
        [sys.executable, "it.py", "kept"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert output_of(Path(done.stdout.strip()), elsewhere=Path("/")) == "trained in it\n"


def test_in_a_trial_nothing_is_tuned_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOTLAP_ASSIGNMENT", "somewhere")
    with pytest.raises(hotlap.HotlapError, match="called in one of its own trials"):
        script_of_function(script_of, tmp_path)


def test_a_function_is_no_module() -> None:
    with pytest.raises(hotlap.HotlapError, match="no module"):
        hotlap.profile(script_of, module=True)


@pytest.mark.slow
def test_a_notebooks_function_is_profiled(notebook: Notebook) -> None:
    notebook.run("import torch\nfrom torch import nn\nSIZE = 32\n")
    notebook.run("class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = nn.Linear(SIZE, 1)\n"
                 "    def forward(self, it):\n        return self.layer(it)\n")  # fmt: skip
    notebook.run(
        "def train():\n    model = Net()\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        "    for _ in range(400):\n        optimizer.zero_grad()\n"
        "        model(torch.ones(8, SIZE)).mean().backward()\n"
        "        optimizer.step()\n"
    )
    study = hotlap.profile(notebook["train"], budget_seconds=60)
    assert study.status == "finished" and study.account_before is not None
    assert study.workload.target.startswith(".hotlap/functions/train-")
    rows = study.steps()
    assert rows[0]["step"] == 1 and rows[0]["run"] == "baseline" and rows[0]["wall_seconds"] > 0
    assert study.speedup is None
