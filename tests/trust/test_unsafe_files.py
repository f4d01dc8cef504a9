"""Files from others: links, pipes, floods, and invalid names."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import fakes

from hotlap import files, plan
from hotlap.api import Engine
from hotlap.cli.main import main
from hotlap.errors import HotlapError, LintError, PlanError, StudyError, TraceError
from hotlap.experiment.options import Options
from hotlap.levers.api import all_levers, find
from hotlap.procedures.check.against import find_against
from hotlap.records import Plan, Setting, Workload
from hotlap.source.lint.configuration import configuration_for
from hotlap.study import JOURNAL, SUMMARY, attach_to, create_study, load_study, open_study
from hotlap.study.layout import LOCK, RUNS, SIGNATURE
from hotlap.traces import read_trace

WORKLOAD = Workload(kind="script", target="train.py", directory="/w", python="python")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with create_study(tmp_path / "studies", WORKLOAD, Options()) as journal:
        return journal.directory


def within_seconds(work: Callable[[], object]) -> BaseException | None:
    """What it raised; fails where it still runs after some seconds, as it would with a pipe."""
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except HotlapError as error:
            raised.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it hangs"
    return raised[0] if raised else None


# -- links ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [LOCK, JOURNAL])
def test_a_link_in_a_study_is_not_written_through(folder: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "precious"
    target.write_bytes((folder / name).read_bytes())
    before = target.read_bytes()
    (folder / name).unlink()
    (folder / name).symlink_to(target)
    with pytest.raises(StudyError, match="symbolic link"):
        open_study(folder)
    assert target.read_bytes() == before


def test_a_runs_folder_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / RUNS).rmdir()
    (folder / RUNS).symlink_to(tmp_path)
    with pytest.raises(StudyError, match="symbolic link"):
        open_study(folder)


@pytest.mark.parametrize("name", [SUMMARY, SIGNATURE, "profile.json"])
def test_a_file_that_is_replaced_takes_the_place_of_a_link(folder: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    study = load_study(folder)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    with open_study(folder) as journal:
        journal.save(study)
        journal.attach("profile.json", study)
    assert target.read_text() == "mine"


def test_temporary_names_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: names.extend(it.name for it in tmp_path.iterdir()))
    for _ in range(2):
        files.replace(tmp_path / "study.json", b"x")
    temporary = {it for it in names if it != "study.json"}
    assert len(temporary) == 2 and not any(str(os.getpid()) in it.split(".") for it in temporary)


def test_a_summary_that_is_a_link_is_not_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes((folder / SUMMARY).read_bytes())
    (folder / SUMMARY).unlink()
    (folder / SUMMARY).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StudyError, match="symbolic link"):
        load_study(folder)


# -- permissions ------------------------------------------------------------------------------------


def modes(root: Path) -> set[tuple[str, int]]:
    return {(it.name, stat.S_IMODE(it.stat().st_mode)) for it in root.iterdir()}


def test_studies_are_private(tmp_path: Path) -> None:
    root = tmp_path / "project" / ".hotlap"
    with create_study(root / "profile", WORKLOAD, Options()) as journal:
        attach_to(journal.directory, "profile.json", load_study(journal.directory))
        inside = modes(journal.directory)
    assert {mode for name, mode in inside if name != RUNS} == {0o600} and (RUNS, 0o700) in inside
    for it in (root, root / "profile", journal.directory):
        assert stat.S_IMODE(it.stat().st_mode) == 0o700
    (tmp_path / "another").mkdir()
    assert root.parent.stat().st_mode == (tmp_path / "another").stat().st_mode, "not ours"


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o700), (0o750, 0o750), (0o700, 0o700)])
def test_a_study_that_everybody_may_read_is_closed_when_it_goes_on(folder: Path, before: int, after: int) -> None:
    folder.chmod(before)
    folder.parent.chmod(0o755)
    open_study(folder).close()
    assert stat.S_IMODE(folder.stat().st_mode) == after
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o755, "the folder of studies stays as it is"


# -- pipes, floods, and names -----------------------------------------------------------------------


def test_a_pipe_is_no_plan(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hotlap.toml")
    error = within_seconds(lambda: plan.read(tmp_path / "hotlap.toml"))
    assert isinstance(error, PlanError) and "not a regular file" in error.what


def test_a_pipe_is_no_trace_and_no_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.json")
    error = within_seconds(lambda: read_trace(str(tmp_path / "trace.json")))
    assert isinstance(error, TraceError) and "not a regular file" in error.what


@pytest.mark.parametrize("name", [LOCK, JOURNAL, SUMMARY])
def test_a_pipe_in_a_study_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    error = within_seconds(lambda: load_study(folder) if name == SUMMARY else open_study(folder).close())
    assert isinstance(error, StudyError)


@pytest.mark.parametrize("trace", ["pipe", "nul"])
def test_a_page_is_made_whatever_the_trace_path_names(folder: Path, tmp_path: Path, trace: str) -> None:
    path = tmp_path / "window.json"
    os.mkfifo(path)
    study = load_study(folder)
    with open_study(folder) as journal:
        journal.save(msgspec.structs.replace(study, trace_path=str(path) if trace == "pipe" else f"{path}\0"))
    page = tmp_path / "page.html"
    assert within_seconds(lambda: main(["report", "--html", str(page), str(folder)], engine=Engine())) is None
    assert page.is_file()


def test_a_large_plan_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "hotlap.toml"
    path.write_bytes(b"#" * (plan.LARGEST_PLAN_BYTES + 1))
    with pytest.raises(PlanError, match=f"at most {plan.LARGEST_PLAN_BYTES} are read"):
        plan.read(path)


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "{a=" * 50_000, "[" + "a." * 20_000 + "b]"])
def test_a_deep_plan_is_no_plan(text: str) -> None:
    with pytest.raises(PlanError):
        plan.from_toml(text)


def test_a_deep_configuration_is_none(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.hotlap.lint]\na = " + "[" * 100_000)
    with pytest.raises(LintError):
        configuration_for(tmp_path / "train.py")


@pytest.mark.parametrize("name", ["../../etc", "", ".", "api", "device-copies", "a\0b", "compile.x", "x" * 10_000])
def test_a_lever_is_looked_up_and_never_imported_by_a_made_up_name(name: str) -> None:
    with pytest.raises(PlanError, match="There is no lever named") as caught:
        find(name)
    assert len(caught.value.what) < 200


def test_a_plan_with_a_made_up_lever(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="There is no lever named"):
        plan.from_toml('[levers."../../etc"]\nworkers = 4\n')
    assert "compile" in all_levers()


def test_the_plan_of_a_foreign_study_is_checked(folder: Path) -> None:
    made_up = Plan(settings=(Setting(lever="../../etc"),))
    study = load_study(folder)
    with open_study(folder) as journal:
        journal.save(msgspec.structs.replace(study, status="finished", plan=made_up))
    with pytest.raises(PlanError, match="There is no lever named"):
        find_against(str(folder), WORKLOAD, folder.parent)


def test_a_command_with_a_nul_is_damage(folder: Path) -> None:
    for name in (SUMMARY, JOURNAL):
        text = (folder / name).read_bytes()
        (folder / name).write_bytes(text.replace(b'"/w"', b'"/w\\u0000"'))
    for look in (load_study, open_study):
        with pytest.raises(StudyError, match="NUL"):
            look(folder)


def test_a_file_that_grows_is_not_read_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1234")
    assert files.read_bounded(path, 4) == b"1234"
    for name, error in ((path, files.TooLargeError), (tmp_path, files.NotRegularError), (Path("a\0b"), OSError)):
        with pytest.raises(error):
            files.read_bounded(name, 3)
    assert fakes.STUDIES
