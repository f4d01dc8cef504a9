"""The last study is the last one that has what is needed."""

from __future__ import annotations

from pathlib import Path

import fakes
import msgspec
import pytest

from hotlap import api
from hotlap.cli.main import main
from hotlap.errors import StudyError
from hotlap.experiment.options import Options
from hotlap.records import Study
from hotlap.study import LABS, PROFILES, create_study, last_study


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / ".hotlap"


def keep(root: Path, found: Study) -> str:
    """One more study; its name."""
    with create_study(root, found.workload, Options()) as journal:
        journal.save(msgspec.structs.replace(found, identifier=journal.header.identifier))
    return journal.header.identifier


def by_somebody_else(root: Path, name: str) -> str:
    """As if the study had been copied in."""
    (root / name / "signature.json").unlink()
    return name


def test_a_script_that_failed_hides_no_answer(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = keep(root, fakes.FINISHED)
    failed = keep(root, fakes.SCRIPT_FAILED)
    assert api.load_study(root).identifier == good
    assert main(["report"]) == 0
    out, err = capsys.readouterr()
    assert "3.65x faster" in out
    assert err == f"hotlap: Using the study {good}: the newer {failed} ended because its script failed.\n"
    assert main(["report", str(root / failed)]) == 0
    assert "ValueError: data/train.bin is empty" in capsys.readouterr().out


def test_what_is_needed_decides(root: Path) -> None:
    finished, quick = keep(root, fakes.FINISHED), keep(root, fakes.QUICK_LOOK)
    profiled = keep(root / PROFILES, fakes.PROFILED)
    assert api.find_study(root, "answer").directory.name == profiled
    assert api.find_study(root, "plan").directory.name == finished
    assert api.find_study(root, "plan").passed_over.endswith(f"the newer {quick} kept no lever.")
    assert api.find_study(root, "search").directory.name == quick
    lab = keep(root / LABS, fakes.FINISHED)
    assert api.load_study(root).identifier == lab
    assert api.find_study(root / quick, "plan").directory == root / quick


def test_a_study_of_somebody_else_is_not_the_last_one(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = keep(root, fakes.FINISHED)
    foreign = by_somebody_else(root, keep(root, fakes.INTERRUPTED))
    found = last_study(root, "search")
    assert found.directory.name == own and f"{foreign} was not made here by you" in found.passed_over
    assert main(["report"]) == 0
    assert "3.65x faster" in capsys.readouterr().out


def test_where_nothing_else_is_there_it_is_taken(root: Path) -> None:
    foreign = by_somebody_else(root, keep(root, fakes.FINISHED))
    assert last_study(root, "plan").directory.name == foreign
    assert last_study(root, "plan").passed_over == ""


def test_where_none_has_an_answer_the_newest_says_why(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(root, fakes.SCRIPT_FAILED)
    newest = keep(root, fakes.SCRIPT_FAILED)
    assert last_study(root).directory.name == newest
    assert main(["report"]) == 0
    assert "data/train.bin is empty" in capsys.readouterr().out


def test_a_study_that_cannot_be_read_hides_no_other(root: Path) -> None:
    good, broken = keep(root, fakes.FINISHED), keep(root, fakes.FINISHED)
    (root / broken / "study.json").write_text("{")
    assert last_study(root).directory.name == good
    assert f"{broken} cannot be read" in last_study(root).passed_over


def test_what_a_newer_study_lacks_is_named(root: Path) -> None:
    good = keep(root, fakes.FINISHED)
    of_memory = msgspec.structs.replace(fakes.FINISHED, kind="memory", account_before=None)
    accounted = keep(root, of_memory)
    found = last_study(root)
    assert found.directory.name == good
    assert f"{accounted} is of `hotlap memory` and has no time account" in found.passed_over
    with create_study(root, fakes.FINISHED.workload, Options()) as journal:
        assert f"{journal.header.identifier} is still running" in last_study(root).passed_over


def test_no_study_at_all(root: Path) -> None:
    with pytest.raises(StudyError, match="no study under"):
        last_study(root)


def test_tables_of_another_study_are_replaced_only_on_request(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = keep(root, fakes.FINISHED), keep(root, fakes.NOTHING)
    folder = Path("hotlap-export/csv")
    assert main(["export", "csv", str(root / first)]) == 0
    before = (folder / "study.csv").read_bytes()
    assert main(["export", "csv", str(root / first)]) == 0  # its own may be written again
    capsys.readouterr()
    assert main(["export", "csv"]) == 2
    assert f"holds the tables of the study {first}" in capsys.readouterr().err
    assert (folder / "study.csv").read_bytes() == before
    assert main(["export", "--force", "csv"]) == 0
    assert second in (folder / "study.csv").read_text()


def test_a_table_of_something_else_is_not_replaced(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(root, fakes.FINISHED)
    Path("out").mkdir()
    Path("out/losses.csv").write_text("mine")
    assert main(["export", "--out", "out", "csv"]) == 2
    assert Path("out/losses.csv").read_text() == "mine"
    assert "--force" in capsys.readouterr().err
