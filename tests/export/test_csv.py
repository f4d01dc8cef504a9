"""Tidy tables and their files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import fakes
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.errors import StudyError
from hotlap.export.csv_files import as_csv, write_csv
from hotlap.export.gather import Gathered
from hotlap.export.tables import Table, tables
from hotlap.records import Block

NAMES = ["study", "levers", "steps", "losses", "findings", "blocks"]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def written(gathered: Gathered, tmp_path: Path) -> Callable[[str], list[dict[str, str]]]:
    write_csv(tables(gathered), tmp_path)
    return lambda name: read(tmp_path / f"{name}.csv")


def test_every_column_is_described_and_nothing_else(gathered: Gathered, tmp_path: Path) -> None:
    paths = write_csv(tables(gathered), tmp_path)
    assert sorted(it.name for it in tmp_path.iterdir()) == sorted(it.name for it in paths)
    assert [it.stem for it in paths] == [*NAMES, "columns"]
    described = [(row["table"], row["column"]) for row in read(tmp_path / "columns.csv")]
    found = [(path.stem, name) for path in paths[:-1] for name in csv_header(path)]
    assert described == found
    assert all(row["meaning"] for row in read(tmp_path / "columns.csv"))


def csv_header(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[0].split(",")


def test_blocks_have_a_column_for_every_field(gathered: Gathered) -> None:
    blocks = tables(gathered)[-1]
    assert {it.name for it in msgspec.structs.fields(Block)} <= {name for name, _ in blocks.columns}


def test_levers(written: Callable[[str], list[dict[str, str]]]) -> None:
    rows = written("levers")
    assert [it["lever"] for it in rows] == [it.lever for it in fakes.OUTCOMES]
    loader, skipped = rows[0], rows[-2]
    assert json.loads(loader["setting"]) == {"persistent_workers": True, "pin_memory": True, "num_workers": 4}
    assert (loader["verdict"], float(loader["speedup"]), loader["baseline_agrees"]) == ("kept", 1.91, "true")
    assert loader["quality"] == "exact"
    assert (skipped["verdict"], skipped["speedup"], float(skipped["bound"])) == ("skipped", "", 1.01)


def test_steps_are_those_of_both_runs(written: Callable[[str], list[dict[str, str]]]) -> None:
    rows = written("steps")
    assert [(it["run"], it["step"]) for it in rows] == [
        (run, str(n)) for run in ("baseline", "plan") for n in (1, 2, 3)
    ]
    second = rows[1]
    assert (float(second["wall_seconds"]), second["loss"], second["loss_finite"]) == (0.2, "", "false")
    assert second["optimizer_seconds"] == ""
    assert float(rows[3]["wall_seconds"]) == pytest.approx(0.15)


def test_losses_findings_and_the_study(written: Callable[[str], list[dict[str, str]]]) -> None:
    assert [(it["step"], it["plan"], it["allowed"]) for it in written("losses")] == [
        ("1", "1.0", ""),
        ("2", "0.51", ""),
    ]
    finding = written("findings")[0]
    assert (finding["rule"], finding["file"], finding["line"]) == ("loader-bound", "train.py", "12")
    assert json.loads(finding["levers"]) == ["loader"]
    study = written("study")
    assert len(study) == 1 and float(study[0]["speedup"]) == 3.65
    assert list(json.loads(study[0]["plan"])) == ["loader", "mixed-precision", "compile"]


def test_blocks_mark_warm_up(written: Callable[[str], list[dict[str, str]]]) -> None:
    rows = written("blocks")
    assert len(rows) == 6
    assert [it["warm_up"] for it in rows[:2]] == ["true", "false"]
    assert (rows[1]["replicate"], rows[1]["arm"], rows[1]["throttled"]) == ("1", "0", "heat")
    assert float(rows[1]["device_energy_joules"]) == 7.5 and rows[1]["processor_energy_joules"] == ""
    assert rows[0]["plan_key"] == rows[2]["plan_key"] != rows[4]["plan_key"]


def test_a_study_without_journal_has_no_blocks(tmp_path: Path) -> None:
    write_csv(tables(Gathered(study=fakes.SCRIPT_FAILED)), tmp_path)
    assert read(tmp_path / "blocks.csv") == read(tmp_path / "steps.csv") == read(tmp_path / "levers.csv") == []
    assert read(tmp_path / "study.csv")[0]["status"] == "script-failed"


@pytest.mark.parametrize("name", sorted(fakes.STUDIES))
def test_every_study_is_exported(name: str, tmp_path: Path) -> None:
    study = fakes.STUDIES[name]
    for table in tables(Gathered(study=study, baseline=study.baseline)):
        assert all(len(row) == len(table.columns) for row in table.rows)
    write_csv(tables(Gathered(study=study)), tmp_path)


def test_foreign_text_has_no_control_characters(tmp_path: Path) -> None:
    for path in write_csv(tables(Gathered(study=fakes.HOSTILE)), tmp_path):
        shown = path.read_text(encoding="utf-8")
        assert not [it for it in ("\x1b", "\x00", "\u202e", "\u2066", "\r", "\x07") if it in shown]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", "'    =1"),
        ("\x1b[31m=1", "'=1"),
        ("\uff1d1", "'\uff1d1"),
        ("train.py", "train.py"),
        (-1.5, "-1.5"),
        (1e-7, "1e-07"),
        (True, "true"),
        (None, ""),
        ('say "hi", twice', '"say ""hi"", twice"'),
    ],
)
def test_text_that_would_be_a_formula_is_text(cell: str | float | bool | None, shown: str) -> None:
    assert as_csv(Table("t", "", (("a", ""), ("b", "")), ((cell, 1),))) == f"a,b\n{shown},1\n"


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_what_is_read_back_never_begins_a_formula(cells: list[str]) -> None:
    columns = tuple((f"c{number}", "") for number in range(len(cells)))
    _, row = csv.reader(io.StringIO(as_csv(Table("t", "", columns, (tuple(cells),)))))
    assert len(row) == len(cells)
    assert not [it for it in row if it.lstrip().startswith(("=", "+", "-", "@"))]


def test_a_folder_that_cannot_be_written(gathered: Gathered, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StudyError, match="cannot be written"):
        write_csv(tables(gathered), tmp_path / "file" / "below")
