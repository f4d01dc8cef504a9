"""The command of a study runs without confirmation only if this user made the study here."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from fake_executor import FakeExecutor

from hotlap import api
from hotlap.api import Engine
from hotlap.cli.main import main
from hotlap.errors import UsageError
from hotlap.experiment.options import Options
from hotlap.study import (
    JOURNAL,
    SUMMARY,
    Opening,
    create_study,
    load_study,
    made_here,
    open_study,
    opening_of,
    refuse_foreign,
)
from hotlap.study.layout import SIGNATURE

QUICK = ["tune", "--quiet", "--only", "compile"]
FROZEN = Path(__file__).parents[1] / "study" / "format-1"


class Terminal(io.StringIO):
    """Standard input of a person who types one line."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("print('training')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def engine(executor: FakeExecutor) -> Engine:
    return Engine(executor=lambda directory, isolation: executor)


def interrupted(*arguments: str) -> Path:
    assert main([*QUICK, "train.py", *arguments], engine=engine(FakeExecutor(interrupt_after=3))) == 130
    return next(it.parent for it in Path(".hotlap").glob(f"*/{JOURNAL}"))


def resume(*words: str) -> tuple[int, int]:
    """The exit code, and how much was run."""
    executor = FakeExecutor()
    return main(["tune", "--quiet", "--resume", *words], engine=engine(executor)), executor.requests


def another_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))


def test_a_study_of_ours_continues_without_approval(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = interrupted()
    assert made_here(folder)
    code, requests = resume(str(folder))
    assert code == 0 and requests > 0
    assert "was not made here" not in capsys.readouterr().err
    assert made_here(folder), "what was added is signed, too"


def test_the_key_is_kept_for_this_user_alone(work: Path, state_home: Path) -> None:
    interrupted()
    key = state_home / "hotlap" / "key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.parent.stat().st_mode & 0o777 == 0o700
    assert len(key.read_bytes()) == 32
    before = key.read_bytes()
    with create_study(Path("more"), load_study(Path(".hotlap")).workload, Options()):
        assert key.read_bytes() == before


@pytest.mark.parametrize("how", ["another-key", "no-signature", "changed-header", "readable-key"])
def test_a_foreign_study_is_shown_and_not_run(
    work: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    state_home: Path,
    how: str,
) -> None:
    folder = interrupted()
    if how == "another-key":
        another_key(monkeypatch, tmp_path)
    elif how == "no-signature":
        (folder / SIGNATURE).unlink()
    elif how == "changed-header":
        lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
        header = json.loads(lines[0])
        header["workload"]["python"] = str(tmp_path / "evil-python")
        (folder / JOURNAL).write_bytes(b"".join([json.dumps(header).encode() + b"\n", *lines[1:]]))
    else:
        elsewhere = tmp_path / "readable"
        shutil.copytree(state_home, elsewhere)
        (elsewhere / "hotlap" / "key").chmod(0o644)
        monkeypatch.setenv("XDG_STATE_HOME", str(elsewhere))
    before = {it.name: it.read_bytes() for it in folder.iterdir() if it.is_file() and it.name != "lock"}
    capsys.readouterr()
    assert resume(str(folder)) == (2, 0)
    err = capsys.readouterr().err
    assert "was not made here by you" in err and "--yes" in err
    assert f"directory    {work}" in err and "command      train.py" in err
    assert ("evil-python" in err) == (how == "changed-header")
    assert {it.name: it.read_bytes() for it in folder.iterdir() if it.is_file() and it.name != "lock"} == before
    assert not made_here(folder)


def test_yes_goes_on_without_asking(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted()
    another_key(monkeypatch, tmp_path)
    executor = FakeExecutor()
    assert main(["tune", "--quiet", "--resume", "--yes", str(folder)], engine=engine(executor)) == 0
    assert executor.requests > 0 and "It would run" in capsys.readouterr().err
    assert not made_here(folder), "running a study does not sign it"


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("\n", 2), ("n\n", 2), ("", 2)])
def test_a_person_is_prompted(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    folder = interrupted()
    another_key(monkeypatch, tmp_path)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", said := Terminal())
    found, requests = resume(str(folder))
    assert (found, requests > 0) == (code, code == 0)
    assert "Run it? [y/N]" in said.getvalue()


def test_a_study_of_the_first_format_prompts(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(FROZEN, work / ".hotlap" / "20260131-142501-337"))
    assert resume(str(folder)) == (2, 0)
    assert "it is not signed" in capsys.readouterr().err


def test_without_a_place_for_the_key_studies_are_foreign(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(work / "file"))
    folder = interrupted()
    assert "key" not in capsys.readouterr().err
    assert resume(str(folder)) == (2, 0)
    assert "you have no key" in capsys.readouterr().err


def test_a_folder_of_another_user_is_foreign(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted()
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert opening_of(folder).why_foreign == "its folder belongs to another user"


def test_the_library_runs_no_foreign_study(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted()
    another_key(monkeypatch, tmp_path)
    executor = FakeExecutor()
    with pytest.raises(UsageError, match="was not made here"):
        api.go_on(folder, on_progress=lambda progress: None, executor=lambda directory, isolation: executor)
    assert executor.requests == 0


def test_a_study_that_changes_after_the_question_is_not_run(work: Path) -> None:
    folder = interrupted()
    approved: list[Opening] = []

    def approve(opening: Opening) -> None:
        approved.append(opening)
        refuse_foreign(opening)

    open_study(folder, approve=approve).close()
    assert approved[0].workload.target == "train.py" and approved[0].ours


def test_reports_never_ask(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted()
    another_key(monkeypatch, tmp_path)
    capsys.readouterr()
    for words in (["report", str(folder)], ["report", "--json", str(folder)], ["history"], ["export", "csv"]):
        assert main(words, engine=engine(FakeExecutor())) == 0
        assert "made here" not in capsys.readouterr().err


def test_a_summary_that_was_edited_is_no_longer_ours(work: Path) -> None:
    folder = interrupted()
    study = json.loads((folder / SUMMARY).read_bytes())
    study["plan"]["settings"] = [{"lever": "compile", "values": []}]
    (folder / SUMMARY).write_text(json.dumps(study))
    assert not made_here(folder)
    assert opening_of(folder).ours, "what resuming runs is in the journal"
