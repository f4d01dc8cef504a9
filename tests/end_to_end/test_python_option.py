"""``--python``: hotlap in an environment of its own, and the script in another one, which does not have hotlap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from setting_up import REPLACES_ITS_CHECKPOINT, SOURCE, interpreter_without, make_project

from hotlap.cli.launchers import active_interpreter, named_interpreter
from hotlap.cli.main import main
from hotlap.errors import ScriptError, UsageError
from hotlap.trial.interpreter import check_interpreter

PLAN = '[levers.fused-optimizer]\nimplementation = "foreach"\n'
SHOWS = """
import sys

import torch

optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
print(sys.prefix, optimizer.defaults["foreach"], "hotlap" in sys.modules)
"""


@pytest.fixture
def apart(tmp_path: Path) -> tuple[str, str]:
    """The interpreter of an environment with hotlap and without torch, and of one with torch and without hotlap."""
    tool = interpreter_without(tmp_path / "tool", "torch", "hotlap")
    (site,) = (tmp_path / "tool").glob("lib/python3*/site-packages")
    (site / "hotlap").symlink_to(SOURCE / "hotlap")
    return tool, interpreter_without(tmp_path / "training", "hotlap")


def run(python: str, *words: str, folder: Path, **variables: str) -> tuple[int, str, str]:
    kept = {name: it for name, it in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")}
    environment = kept | {"OMP_NUM_THREADS": "1"} | variables
    done = subprocess.run(
        [python, "-m", "hotlap", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def fake(folder: Path, answer: str, status: int = 0) -> str:
    """A program that answers as an interpreter would."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{answer}'\nexit {status}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_plan_is_applied_in_an_environment_without_hotlap(apart: tuple[str, str], tmp_path: Path) -> None:
    tool, training = apart
    (tmp_path / "train.py").write_text(SHOWS, encoding="utf-8")
    (tmp_path / "hotlap.toml").write_text(PLAN, encoding="utf-8")
    code, out, err = run(tool, "run", "--python", "training", "train.py", folder=tmp_path)
    assert code == 0, err
    assert out.split() == [str(tmp_path / "training"), "True", "True"]
    without = subprocess.run([training, "-E", "-c", "import hotlap"], cwd=tmp_path, capture_output=True, check=False)
    assert without.returncode != 0, "the environment of the script has no hotlap"


def test_the_active_environment_is_used_where_hotlap_has_no_torch(apart: tuple[str, str], tmp_path: Path) -> None:
    tool, training = apart
    (tmp_path / "train.py").write_text(SHOWS, encoding="utf-8")
    (tmp_path / "hotlap.toml").write_text(PLAN, encoding="utf-8")
    code, out, err = run(tool, "run", "train.py", folder=tmp_path, VIRTUAL_ENV=str(tmp_path / "training"))
    assert code == 0, err
    assert out.split()[0] == str(tmp_path / "training")
    assert f"the script is run with {training}" in err


@pytest.mark.slow
def test_a_script_of_another_environment_is_profiled(apart: tuple[str, str], tmp_path: Path) -> None:
    tool, training = apart
    project = make_project(tmp_path / "project", REPLACES_ITS_CHECKPOINT)
    code, out, err = run(tool, "profile", "--json", "--quiet", "--python", training, "train.py", folder=project)
    assert code == 0, err
    study = json.loads(out)
    assert study["workload"]["python"] == training and study["account_before"] is not None


def test_a_path_a_folder_and_a_name_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    link = tmp_path / "env" / "bin" / "python"
    link.symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert named_interpreter("env") == named_interpreter("env/bin/python") == str(link), "the link decides"
    monkeypatch.setenv("PATH", str(link.parent))
    assert named_interpreter("python") == str(link)
    with pytest.raises(UsageError, match="no interpreter 'nowhere'"):
        named_interpreter("nowhere")


def test_the_active_environment_goes_before_one_that_lies_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    for name in (".venv", "active"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").symlink_to(sys.executable)
    assert active_interpreter() == str(tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "active"))
    assert active_interpreter() == str(tmp_path / "active" / "bin" / "python")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ('{"python": [3, 9, 18], "found": []}', "is Python 3.9.18; hotlap needs 3.11 or newer."),
        ('{"python": [3, 12, 1], "found": ["numpy"]}', "torch is not installed for"),
        ('{"python": [3, 12, 1], "found": ["torch", "numpy", "psutil"]}', "process: msgspec."),
        ("no JSON", "does not work as a Python interpreter"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(answer: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ScriptError) as caught:
        check_interpreter(fake(tmp_path, answer))
    assert says in caught.value.what and caught.value.what.count(". ") == 0 and caught.value.remedy


def test_a_plan_alone_needs_neither_numpy_nor_psutil(tmp_path: Path) -> None:
    python = fake(tmp_path, '{"python": [3, 12, 1], "found": ["torch", "msgspec"]}')
    check_interpreter(python, trains=False)
    with pytest.raises(ScriptError, match="numpy, psutil"):
        check_interpreter(python)


def test_a_program_that_fails_is_no_interpreter(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="does not work as a Python interpreter"):
        check_interpreter(fake(tmp_path, '{"python": [3, 12, 1], "found": ["torch"]}', status=1))


@pytest.mark.parametrize("words", [(sys.executable, "train.py"), ("uv", "run", "train.py")])
def test_two_interpreters_are_an_error(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "--python", sys.executable, *words]) == 2
    assert "Both --python and" in capsys.readouterr().err
