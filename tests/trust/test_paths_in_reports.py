"""Paths in reports: from the project where they are below it, from the home directory as ``~``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import fakes
from plain_report import plain

from hotlap.cli import screen
from hotlap.errors import StudyError
from hotlap.records import Crashed, FileWrite, Run, Study, Workload
from hotlap.render import text
from hotlap.render.html.page import page
from hotlap.render.json import study_json
from hotlap.render.markdown import markdown_report
from hotlap.render.material import Material
from hotlap.render.notebook import fragment, summary
from hotlap.render.presentable import presentable, shown

HOME, PROJECT = "/home/ada", "/home/ada/work"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", HOME)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (f"{PROJECT}/train.py:3", "train.py:3"),
        (f'File "{PROJECT}/pkg/a.py", line 3', 'File "pkg/a.py", line 3'),
        (PROJECT, "~/work"),
        (f"{PROJECT}/", "~/work/"),
        (f"It is in {HOME}.", "It is in ~."),
        (f"{PROJECT}ing/a", "~/working/a"),
        (f"{HOME}/.venv/bin/python", "~/.venv/bin/python"),
        (f"{HOME}/data and {PROJECT}/b", "~/data and b"),
        (f"--data={HOME}/data", "--data=~/data"),
        (HOME, "~"),
        ("/home/adam/x", "/home/adam/x"),
        ("/mnt/home/ada/x", "/mnt/home/ada/x"),
        ("/usr/lib/x.so", "/usr/lib/x.so"),
        ("train.py", "train.py"),
    ],
)
def test_paths_are_shortened(given: str, expected: str) -> None:
    assert shown(given, PROJECT) == expected
    assert shown(expected, PROJECT) == expected


@pytest.mark.parametrize("directory", ["/", "", "relative"])
def test_the_root_is_no_project(directory: str) -> None:
    assert shown("/etc/x", directory) == "/etc/x"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((f"{HOME}/my data/x",), "~/'my data/x'"),
        (("--data", f"{HOME}/x"), "--data ~/x"),
        ((f"--data={HOME}/x y",), "--data=\"$HOME\"/'x y'"),
        ((f"{PROJECT}/a b",), "'a b'"),
    ],
)
def test_commands_can_be_typed(words: tuple[str, ...], expected: str) -> None:
    workload = Workload(kind="script", target="t.py", arguments=words, directory=PROJECT, python="python")
    assert text.command(workload) == f"t.py {expected}"


def study() -> Study:
    ending = Crashed(exit_code=1, error=f"no {HOME}/data", output_tail=f"{PROJECT}/train.py\n{HOME}/data")
    return msgspec.structs.replace(
        fakes.FINISHED,
        workload=Workload(
            kind="script",
            target=f"{PROJECT}/train.py",
            arguments=("--data", f"{HOME}/data"),
            directory=PROJECT,
            python=f"{HOME}/.venv/bin/python",
        ),
        directory=f"{PROJECT}/.hotlap/20260131-142501-337",
        trace_path=f"{PROJECT}/.hotlap/20260131-142501-337/runs/1/window.json",
        files=(FileWrite(path=f"{PROJECT}/out.pt", redirected=True),),
        warnings=(f"{HOME}/x is slow",),
        baseline=Run(ending=ending, output_path=f"{PROJECT}/.hotlap/x/output.txt"),
    )


@pytest.mark.parametrize("status", ["finished", "interrupted", "script-failed"])
def test_no_report_shows_where_a_user_lives(status: str) -> None:
    of = msgspec.structs.replace(study(), status=status)
    for made in (plain(of), summary(of), fragment(of), markdown_report(of), study_json(of)):
        assert HOME not in made and "train.py" in made
    made = page(Material(study=of, command="hotlap tune train.py"))
    assert HOME not in made and "~/.venv/bin/python" in made


def test_the_record_itself_keeps_its_paths() -> None:
    of = study()
    presentable(of, PROJECT)
    assert of.directory.startswith(PROJECT)
    assert json.loads(study_json(of))["workload"]["python"] == "~/.venv/bin/python"


def test_errors_hide_secrets_and_the_home(capsys: pytest.CaptureFixture[str]) -> None:
    screen.complain(
        StudyError(
            f"The study {HOME}/x is bad.", remedy="Look.", where="python t.py --wandb-key hunter2 postgres://u:PW@h/db"
        )
    )
    err = capsys.readouterr().err
    assert HOME not in err and "hunter2" not in err and "PW" not in err
    assert "~/x is bad" in " ".join(err.split())
