"""``--python``: hotlap in an environment of its own, and the script in another one, which does not have hotlap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

sys.path.extend(str(Path(__file__).parents[1] / it) for it in ("end_to_end", "procedures", "check", "source/patch"))

from fake_script import Effect
from pair import Pair
from patching import facts_of
from setting_up import REPLACES_ITS_CHECKPOINT, SOURCE, interpreter_without, make_project

import hotlap
from hotlap.api import Engine
from hotlap.cli.launchers import active_interpreter
from hotlap.cli.main import main
from hotlap.cli.workload import workload_from
from hotlap.errors import ScriptError, UsageError
from hotlap.experiment.options import Options
from hotlap.levers.support.situations import make_setting
from hotlap.records import Plan, Run, Study, StudyKind, Workload
from hotlap.render import text
from hotlap.render.kinds.api import presenter_of
from hotlap.study import create_study, load_study
from hotlap.trial.interpreter import check_interpreter, named_interpreter

PLAN = '[levers.fused-optimizer]\nimplementation = "foreach"\n'
LOOP = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
data = torch.utils.data.TensorDataset(torch.randn(64_000, 64))
for (batch,) in torch.utils.data.DataLoader(data, batch_size=16):
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
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


def workload_of(folder: Path, python: str, *, named: bool) -> Workload:
    return Workload(kind="script", target="train.py", directory=str(folder), python=python, python_named=named)


def keep_study(script: Path, python: str) -> None:
    """Write a finished study of the script, with a plan."""
    plan = Plan(settings=(make_setting("fused-optimizer", implementation="fused"),))
    with create_study(script.parent / ".hotlap", workload_of(script.parent, python, named=False), Options()) as journal:
        found = load_study(journal.directory)
        run = Run(facts=facts_of(script))
        journal.save(msgspec.structs.replace(found, status="finished", plan=plan, baseline=run))


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


def test_commands_that_are_printed_name_the_interpreter_again(apart: tuple[str, str], tmp_path: Path) -> None:
    _, training = apart
    (tmp_path / "train.py").touch()
    named = workload_of(tmp_path, training, named=True)
    assert text.command(named, "--only", "loader") == "--only loader --python training/bin/python train.py"
    assert text.command(msgspec.structs.replace(named, python_named=False)) == "train.py"
    assert text.script_command(named) == "train.py", "a study that is continued knows its interpreter"
    at_home = msgspec.structs.replace(named, python=str(Path.home() / "env" / "bin" / "python"))
    assert text.command(at_home) == "--python ~/env/bin/python train.py"
    for kind in get_args(StudyKind):
        commands = presenter_of(kind).next_commands(Study(workload=named, kind=kind, status="interrupted"), "")
        repeated = [it for it, _ in commands if "train.py" in it]
        assert all("--python training/bin/python train.py" in it for it in repeated), kind


@pytest.mark.parametrize("word", ["training", "training/bin/python"])
def test_an_interpreter_that_the_command_names_is_remembered(
    word: str, apart: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    found = workload_from(["train.py"], "tune", named_interpreter(word))
    assert found.python == apart[1] and found.python_named
    assert workload_from([apart[1], "train.py"], "tune").python_named, "a path before the script"
    assert not workload_from(["train.py"], "tune").python_named
    assert not workload_from(["train.py"], "tune", sys.executable).python_named


def test_the_proof_of_a_patch_runs_with_the_named_interpreter(
    apart: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(LOOP, encoding="utf-8")
    keep_study(tmp_path / "train.py", sys.executable)
    ran: list[str] = []

    def patch(*words: str, patched: Effect) -> int:
        del ran[:]
        executor = Pair(patched)
        code = main(["patch", *words], engine=Engine(executor=lambda directory, isolation: executor))
        ran.extend({it.workload.python for it in executor.assignments})
        return code

    assert patch("--python", "training", patched=Effect()) == 0
    assert ran == [apart[1]], "both sides"
    assert patch("--python", "training", patched=Effect(compute=1.5)) == 0
    assert "proved before" in capsys.readouterr().err
    assert patch(patched=Effect(compute=1.5)) == 1, "a proof by another interpreter is none for the study's"
    assert ran == [sys.executable]
    assert patch("--python", "nowhere", patched=Effect()) == 2
    assert "no interpreter 'nowhere'" in capsys.readouterr().err


def test_the_proof_from_python_runs_with_the_named_interpreter(
    apart: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(LOOP, encoding="utf-8")
    keep_study(tmp_path / "train.py", sys.executable)
    executor = Pair(Effect())
    monkeypatch.setattr("hotlap.api.engine.local_executor", lambda directory, isolation: executor)
    found = hotlap.patch(python=tmp_path / "training")
    assert found.proof is not None and found.proof.python == apart[1]
    assert {it.workload.python for it in executor.assignments} == {apart[1]}, "both sides"
    with pytest.raises(UsageError, match="no interpreter 'nowhere'"):
        hotlap.patch(python="nowhere")


@pytest.mark.slow
def test_a_patch_is_proved_in_another_environment(apart: tuple[str, str], tmp_path: Path) -> None:
    _, training = apart
    (tmp_path / "train.py").write_text(LOOP, encoding="utf-8")
    environment = {"PYTHONPATH": str(SOURCE)}
    words = ("--quiet", "--python", "training", "--budget", "300s")
    code, _, err = run(sys.executable, "lab", *words, "train.py", folder=tmp_path, **environment)
    assert code == 0, err
    plan = Plan(settings=(make_setting("fused-optimizer", implementation="fused"),))
    (folder,) = (tmp_path / ".hotlap" / "lab").glob("2*")
    found = load_study(folder)
    with create_study(tmp_path / ".hotlap", found.workload, Options()) as journal:
        journal.save(msgspec.structs.replace(found, kind="search", plan=plan, directory=""))
    code, out, err = run(sys.executable, "patch", "--quiet", "--delta", "0.9", folder=tmp_path, **environment)
    assert code == 0, err
    assert "fused=True" in out and "UNPROVEN" not in out
    (kept,) = (tmp_path / ".hotlap").glob("2*/patch.json")
    assert json.loads(kept.read_text())["proof"]["python"] == training
