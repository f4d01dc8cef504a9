"""``hotlap export`` on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import fakes
import pytest
from fake_executor import FakeExecutor

from hotlap.api import Engine
from hotlap.cli.main import main
from hotlap.render.json import study_json


@pytest.fixture
def study(work: Path) -> Path:
    path = work / "study.json"
    path.write_text(study_json(fakes.FINISHED), encoding="utf-8")
    return path


def test_csv_is_written_below_the_working_directory(
    study: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "csv", str(study)]) == 0
    out, err = capsys.readouterr()
    written = [Path(it) for it in out.splitlines()]
    assert [it.name for it in written][:2] == ["study.csv", "levers.csv"]
    assert all((work / it).parent == work / "hotlap-export" / "csv" for it in written)
    with (work / "hotlap-export/csv/levers.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(fakes.OUTCOMES)
    assert "columns.csv describes every column" in err


def test_written_files_are_listed_as_json(study: Path, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--json", "--out", "tables", "csv", str(study)]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["format"], found["study"]) == ("csv", fakes.FINISHED.identifier)
    assert all(Path(it).is_file() for it in found["written"])
    assert err == ""


def test_quiet_lists_only_the_written_files(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--quiet", "csv", str(study)]) == 0
    out, err = capsys.readouterr()
    assert "steps.csv" in out and err == ""


def test_a_search_is_exported_with_its_replicates(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine(executor=lambda directory, isolation: FakeExecutor())
    assert main(["tune", "--quiet", "--only", "compile,huge-pages", "train.py"], engine=engine) == 0
    assert main(["export", "csv"], engine=engine) == 0
    with (work / "hotlap-export/csv/steps.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {it["run"] for it in rows} == {"baseline", "plan"}
    before, after = (next(it for it in rows if it["run"] == name) for name in ("baseline", "plan"))
    ratio = float(before["wall_seconds"]) / float(after["wall_seconds"])
    assert ratio == pytest.approx(1.6 * 1.3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["xml"], "invalid choice: 'xml'"),
        ([], "required"),
        (["csv", "--online"], "--online is an option of `hotlap export wandb`"),
        (["wandb", "--tracking-uri", "http://x"], "--tracking-uri is an option of `hotlap export mlflow`"),
        (["csv", "nowhere"], "no study"),
    ],
)
def test_bad_usage(words: list[str], said: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", *words]) == 2
    assert said in capsys.readouterr().err
    assert not (work / "hotlap-export").exists()
