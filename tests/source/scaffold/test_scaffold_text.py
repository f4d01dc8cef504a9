"""The text of the written files: complete, plain, well ordered, and the same wherever tasks do not differ."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.cli.main import main
from hotlap.source.scaffold.compose import FILES, TASKS, Task, compose

RULES = "E,F,W,I,UP,B,SIM,RUF,C4,PTH"
WIDTH = "100"


def test_every_file_is_whole(task: Task) -> None:
    files = compose(task)
    assert set(files) == set(FILES)
    for name, text in files.items():
        assert "#@" not in text, name
        assert "template" not in text.lower(), name
        assert text.endswith("\n") and not text.endswith("\n\n"), name


def test_the_script_is_self_contained(task: Task) -> None:
    tree = ast.parse(compose(task)["train.py"])
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).split(".")[0])
    others = roots - sys.stdlib_module_names
    assert others == ({"torch", "sklearn"} if task == "image" else {"torch"})
    assert "hotlap" not in compose(task)["train.py"]


def test_the_requirements_name_what_the_script_imports() -> None:
    needs = {it: {line.partition(">=")[0] for line in compose(it)["requirements.txt"].splitlines()} for it in TASKS}
    assert needs == {"image": {"torch", "scikit-learn"}, "text": {"torch"}, "lm": {"torch"}}


def definitions(task: Task) -> dict[str, str]:
    tree = ast.parse(compose(task)["train.py"])
    return {it.name: ast.unparse(it) for it in tree.body if isinstance(it, (ast.FunctionDef, ast.ClassDef))}


def test_what_tasks_share_is_the_same_in_all() -> None:
    image, text, lm = (definitions(it) for it in TASKS)
    differ = {name for name in image if name in text and not image[name] == text[name] == lm[name]}
    # Their own options and data; the layout and the search for convolutions, which only pictures have.
    assert differ == {"Options", "Block", "load_data", "build_model", "Trainer", "main"}
    assert text["Trainer"] == lm["Trainer"] and text["main"] == lm["main"]
    assert image["main"].replace("    torch.backends.cudnn.benchmark = True\n", "") == lm["main"]


def test_every_knob_is_explained_in_a_line(task: Task) -> None:
    tree = ast.parse(compose(task)["train.py"])
    options = next(it for it in tree.body if isinstance(it, ast.ClassDef) and it.name == "Options")
    knobs = [it for it in options.body if isinstance(it, ast.AnnAssign)]
    assert len(knobs) > 20
    for knob in knobs:
        assert isinstance(knob.annotation, ast.Subscript) and isinstance(knob.annotation.slice, ast.Tuple)
        about = ast.literal_eval(knob.annotation.slice.elts[1])
        assert len(about) > 10 and "%" not in about


def tool(*words: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing(scripts: dict[Task, Path]) -> None:
    folder = scripts["image"].parents[1]
    tool("ruff", "check", "--isolated", "--line-length", WIDTH, "--select", RULES, ".", folder=folder)
    tool("ruff", "format", "--isolated", "--line-length", WIDTH, "--check", ".", folder=folder)


@pytest.mark.slow
def test_mypy_finds_nothing(scripts: dict[Task, Path], task: Task, tmp_path: Path) -> None:
    strict = ("--disallow-untyped-defs", "--disallow-any-generics", "--warn-unreachable", "--warn-unused-ignores")
    tool("mypy", "--config-file=", *strict, "--cache-dir", str(tmp_path), "train.py", folder=scripts[task].parent)


def test_our_own_lint_finds_nothing(scripts: dict[Task, Path], task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(scripts[task])]) == 0, capsys.readouterr().out
