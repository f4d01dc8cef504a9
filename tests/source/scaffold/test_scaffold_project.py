"""Writing a project: where it goes, what is left alone, what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotlap.cli.main import main
from hotlap.errors import UsageError
from hotlap.source.scaffold.compose import FILES, Task, compose
from hotlap.source.scaffold.project import create


def listing(folder: Path) -> set[str]:
    return {str(it.relative_to(folder)) for it in folder.rglob("*")}


def test_a_project_is_written_into_a_new_folder(tmp_path: Path, task: Task) -> None:
    project = create(tmp_path / "a" / "b", task)
    assert (project.files, project.replaced) == (tuple(FILES), ())
    assert listing(tmp_path / "a" / "b") == set(FILES)
    for name, text in compose(task).items():
        assert (tmp_path / "a" / "b" / name).read_text(encoding="utf-8") == text


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    create(tmp_path, "lm")
    assert listing(tmp_path) == {"notes.txt", *FILES}


def test_the_script_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    create(tmp_path, "lm", script_only=True)
    assert listing(tmp_path) == {"README.md", "train.py"}
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("present", "said"),
    [
        (["train.py"], "train.py exists already"),
        (["README.md", "train.py"], "train.py and README.md exist already"),
        (list(FILES), "train.py, README.md and requirements.txt exist already"),
    ],
)
def test_what_exists_is_never_replaced_without_force(tmp_path: Path, present: list[str], said: str) -> None:
    for name in present:
        (tmp_path / name).write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=f"{said}; nothing was written"):
        create(tmp_path, "text")
    assert listing(tmp_path) == set(present)
    assert all((tmp_path / name).read_text(encoding="utf-8") == "mine" for name in present)


def test_force_replaces_and_says_what(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("old", encoding="utf-8")
    project = create(tmp_path, "text", force=True)
    assert project.replaced == ("README.md",)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == compose("text")["README.md"]
    assert listing(tmp_path) == set(FILES)


def test_force_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text("mine", encoding="utf-8")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").symlink_to(elsewhere)
    create(folder, "lm", force=True)
    assert elsewhere.read_text(encoding="utf-8") == "mine"
    assert not (folder / "train.py").is_symlink()


def test_a_link_that_leads_nowhere_is_somebodys_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").symlink_to(tmp_path / "gone.py")
    with pytest.raises(UsageError, match=r"train\.py exists already"):
        create(tmp_path, "lm")
    assert not (tmp_path / "gone.py").exists()


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        create(tmp_path, "lm", force=True)
    assert listing(tmp_path) == {"train.py"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("train.py", "is the name of a script"),
        ("file", "is not a folder"),
        ("file/below", "is not a folder"),
        ("a\nb", "characters that cannot be shown"),
        ("nul\0", "characters that cannot be shown"),
        ("x" * 300, "cannot be written: File name too long"),
    ],
)
def test_names_that_no_project_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        create(Path(name), "lm")
    assert listing(tmp_path) == {"file"}


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my project", "--task", "text"]) == 0
    out, _ = capsys.readouterr()
    assert "written   my project/train.py" in out
    assert "cd 'my project' && python train.py" in out
    assert main(["new", "my project", "--task", "text"]) == 2
    assert "nothing was written" in capsys.readouterr().err
    assert main(["new", "my project", "--task", "lm", "--force"]) == 0
    assert "replaced  my project/train.py" in capsys.readouterr().out


def test_the_folder_is_this_one_unless_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--task", "lm", "--script-only"]) == 0
    assert listing(tmp_path) == {"train.py"}
    assert "Begin with `python train.py`" in capsys.readouterr().out


@pytest.mark.parametrize(("task", "noted"), [("image", True), ("text", False)])
def test_what_is_not_installed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], task: str, noted: bool
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["new", str(tmp_path / "project"), "--task", task]) == 0
    assert ("pip install scikit-learn" in capsys.readouterr().err) is noted


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "No task was given."),
        (["--task", "speech"], "invalid choice: 'speech'"),
        (["", "--task", "lm"], "name is empty"),
        (["a", "b", "--task", "lm"], "nrecognized arguments: b"),
    ],
)
def test_bad_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", *words]) == 2
    assert said in capsys.readouterr().err
    assert listing(tmp_path) == set()
