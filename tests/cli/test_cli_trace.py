"""``hotlap trace`` from its command line to its output."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))

from trace_writer import TraceWriter, training_trace

from hotlap.cli.main import main


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def test_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = training_trace().write(tmp_path / "trace.json.gz", deviceProperties=[{"id": 0, "name": "Some GPU"}])
    assert main(["trace", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "Device 0 (Some GPU)" in shown
    assert "waiting for the data loader" in shown
    assert "ampere_sgemm_0" in shown
    assert "18 of devices (18 linked to their launch, 0 not)" in " ".join(shown.split())


def test_json_holds_whole_nanoseconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = training_trace().write(tmp_path / "trace.json")
    assert main(["trace", "--json", str(path)]) == 0
    document = json.loads(capsys.readouterr().out)
    (trace,) = document["traces"]
    assert document["skipped"] == []
    assert trace["devices"][0]["time"]["compute_nanoseconds"] == 900_000
    assert trace["coverage"]["events"] == len(training_trace().events)


def test_a_folder_of_ranks_and_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        folder = tmp_path / "profile" / f"{rank}"
        folder.mkdir(parents=True)
        training_trace().write(folder / "r.pt.trace.json", distributedInfo={"rank": rank, "world_size": 2})
    (tmp_path / "package.json").write_text('{"name": "no trace"}', encoding="utf-8")
    (tmp_path / "broken.json.gz").write_bytes(b"\x1f\x8b....")
    (tmp_path / "notes.txt").write_text("no", encoding="utf-8")
    assert main(["trace", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "rank 0 of 2" in shown
    assert "rank 1 of 2" in shown
    assert "All traces" in shown
    assert "no traceEvents" in shown
    assert "broken.json.gz" in shown
    assert "notes.txt" not in shown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "empty"),
        (b"no", "not JSON"),
        (b"{}", "no traceEvents"),
        (b"\x1f\x8bzz", "damaged"),
        (None, "no such file"),
    ],
)
def test_what_is_no_trace(text: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json.gz" if text and text[:1] == b"\x1f" else tmp_path / "trace.json"
    if text is not None:
        path.write_bytes(text)
    assert main(["trace", str(path)]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert "Traceback" not in complaint


def test_a_folder_without_any_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("[]", encoding="utf-8")
    assert main(["trace", str(tmp_path)]) == 2
    assert "None of the folder's 2 JSON files" in capsys.readouterr().err


def test_names_cannot_take_over_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    evil = "\x1b[2J\x1b]0;title\x07[red]kernel[/red]\u202e\n<b>"
    for index in range(4):
        writer.launch(evil, index * 900, index * 900 + 700, 50)
        writer.host("operator", evil, index * 900 - 100, 300)
    path = writer.write(tmp_path / "trace.json", deviceProperties=[{"id": 0, "name": evil}])
    assert main(["trace", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]kernel[/red]" in shown


def test_a_trace_without_accelerator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    writer.step(0, 0, 100)
    writer.host("operator", "aten::mm", 5, 50)
    assert main(["trace", str(writer.write(tmp_path / "trace.json"))]) == 0
    assert "no accelerator work" in capsys.readouterr().out
