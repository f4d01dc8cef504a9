"""``hotlap lint`` and ``hotlap rule`` from the command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hotlap.cli.main import main

BAD = """\
import torch

for batch in loader:
    loss = model(batch.cuda()).mean()
    loss.backward()
    optimizer.step()
    torch.cuda.empty_cache()
"""
CLEAN = BAD.replace("    torch.cuda.empty_cache()\n", "")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_exit_codes(run: Run) -> None:
    Path("train.py").write_text(CLEAN)
    assert run("lint", "train.py")[0] == 0
    Path("train.py").write_text(BAD)
    code, out, _ = run("lint", "train.py")
    assert code == 1 and out.startswith("train.py:7:5 HL502 ")
    Path("broken.py").write_text("import torch (")
    code, out, _ = run("lint")
    assert code == 2 and "HL502" in out and "broken.py:1 not checked" in out
    code, _, err = run("lint", "absent.py")
    assert code == 2 and "no such file or folder" in err


def test_fix(run: Run) -> None:
    Path("train.py").write_text(BAD)
    code, out, _ = run("lint", "--diff", "--unsafe-fixes", "train.py")
    assert code == 1
    assert out.startswith("--- a/train.py\n+++ b/train.py\n") and "-    torch.cuda.empty_cache()\n" in out
    assert Path("train.py").read_text() == BAD
    assert run("lint", "--fix", "train.py")[0] == 1
    assert Path("train.py").read_text() == BAD, "an unsafe fix is applied only on request"
    code, out, _ = run("lint", "--fix", "--unsafe-fixes", "train.py")
    assert code == 0 and "Fixed 1 problem in 1 file: HL502 1x." in out
    assert Path("train.py").read_text() == CLEAN


def test_a_diff_can_be_applied(run: Run) -> None:
    Path("train.py").write_text(BAD.rstrip("\n"))
    _, out, _ = run("lint", "--diff", "--unsafe-fixes", ".")
    Path("fixes.diff").write_text(out)
    applied = subprocess.run(["git", "apply", "fixes.diff"], capture_output=True, text=True)
    assert applied.returncode == 0, applied.stderr
    assert Path("train.py").read_text().rstrip("\n") == CLEAN.rstrip("\n")


def test_selection(run: Run) -> None:
    Path("train.py").write_text(BAD)
    assert run("lint", "--select", "HL2,HL1", "train.py")[0] == 0
    assert run("lint", "--ignore", "HL502", "--ignore", "HL6", "train.py")[0] == 0
    assert run("lint", "--select", "empty-cache-in-loop", "train.py")[0] == 1
    code, _, err = run("lint", "--select", "HL52", "train.py")
    assert code == 2 and "no lint rule 'HL52'" in err
    Path("pyproject.toml").write_text("[tool.hotlap.lint]\nignore = ['HL502']\n")
    assert run("lint", "train.py")[0] == 0
    Path("pyproject.toml").write_text("[tool.hotlap.lint]\nignored = ['HL502']\n")
    code, _, err = run("lint", "train.py")
    assert code == 2 and "Did you mean 'ignore'?" in err


@pytest.mark.parametrize("form", ["json", "sarif", "github"])
def test_output_formats(run: Run, form: str) -> None:
    Path("train.py").write_text(BAD)
    code, out, _ = run("lint", "--output-format", form, "train.py")
    assert code == 1 and "HL502" in out
    if form != "github":
        json.loads(out)
    Path("train.py").write_text(CLEAN)
    code, out, _ = run("lint", "--output-format", form, "train.py")
    assert code == 0 and (out == "" if form == "github" else json.loads(out))


@pytest.mark.parametrize(
    "words",
    [
        ("--unsafe-fixes", "train.py"),
        ("--diff", "--output-format", "json", "train.py"),
        ("-", "train.py"),
        ("--fix", "-"),
        ("--output-format", "xml"),
    ],
)
def test_bad_usage(run: Run, words: tuple[str, ...]) -> None:
    Path("train.py").write_text(BAD)
    code, out, err = run("lint", *words)
    assert code == 2 and not out and err


def test_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    code, out, _ = run("lint", "-")
    assert code == 1 and out.startswith("<stdin>:7:5 HL502")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"import torch\n\0")))
    code, out, _ = run("lint", "-")
    assert code == 2 and "null bytes" in out


def test_nothing_to_check(run: Run) -> None:
    code, _, err = run("lint", ".")
    assert code == 2 and "no Python file or notebook" in err


def test_rules(run: Run) -> None:
    code, out, _ = run("rule")
    assert code == 0 and "HL201  item-in-hot-loop" in out
    for asked in ("HL201", "hl201", "item-in-hot-loop"):
        code, out, _ = run("rule", asked)
        assert code == 0 and out.startswith("HL201  item-in-hot-loop") and "Use instead" in out
    code, _, err = run("rule", "item-in-hot-lop")
    assert code == 2 and "Did you mean 'item-in-hot-loop'?" in err


def test_lint_imports_neither_torch_nor_the_editor(tmp_path: Path) -> None:
    """Linting must start fast: torch is never needed, and the editor only for fixes."""
    (tmp_path / "train.py").write_text(BAD)
    asked = "import sys; from hotlap.cli.main import main; main(['lint', 'train.py']); print(sorted(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert "HL502" in done.stdout
    modules = done.stdout.splitlines()[-1]
    for name in ("torch", "libcst", "rich", "multiprocessing.pool"):
        assert f"'{name}'" not in modules
