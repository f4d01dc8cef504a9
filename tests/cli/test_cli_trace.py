"""``hotlap trace`` from its command line to its output."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "traces"))

from trace_writer import TraceWriter, kineto_text, training_trace

from hotlap.cli.main import main
from hotlap.render.brief import MOST_LINES


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def test_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = training_trace().write(tmp_path / "trace.json.gz", deviceProperties=[{"id": 0, "name": "Some GPU"}])
    assert main(["trace", "--full", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "Device 0 (Some GPU)" in shown
    assert "waiting for the data loader" in shown
    assert "ampere_sgemm_0" in shown
    assert "18 of devices (18 linked to their launch, 0 not)" in " ".join(shown.split())


def test_json_holds_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = training_trace().write(tmp_path / "trace.json")
    assert main(["trace", "--json", str(path)]) == 0
    document = json.loads(capsys.readouterr().out)
    (trace,) = document["traces"]
    assert document["skipped"] == []
    assert trace["devices"][0]["time"]["compute_seconds"] == 0.0009
    assert trace["coverage"]["events"] == len(training_trace().events)


def test_a_folder_of_ranks_and_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        folder = tmp_path / "profile" / f"{rank}"
        folder.mkdir(parents=True)
        training_trace().write(folder / "r.pt.trace.json", distributedInfo={"rank": rank, "world_size": 2})
    (tmp_path / "package.json").write_text('{"name": "no trace"}', encoding="utf-8")
    (tmp_path / "broken.json.gz").write_bytes(b"\x1f\x8b....")
    (tmp_path / "notes.txt").write_text("no", encoding="utf-8")
    assert main(["trace", "--full", str(tmp_path)]) == 0
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
def test_files_that_are_no_traces(
    text: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json.gz" if text and text[:1] == b"\x1f" else tmp_path / "trace.json"
    if text is not None:
        path.write_bytes(text)
    assert main(["trace", "--full", str(path)]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert "Traceback" not in complaint


def test_a_folder_without_any_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("[]", encoding="utf-8")
    assert main(["trace", "--full", str(tmp_path)]) == 2
    assert "None of the folder's 2 JSON files" in capsys.readouterr().err


def test_control_characters_in_names_are_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    evil = "\x1b[2J\x1b]0;title\x07[red]kernel[/red]\u202e\n<b>"
    for index in range(4):
        writer.launch(evil, index * 900, index * 900 + 700, 50)
        writer.host("operator", evil, index * 900 - 100, 300)
    path = writer.write(tmp_path / "trace.json", deviceProperties=[{"id": 0, "name": evil}])
    assert main(["trace", "--full", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]kernel[/red]" in shown


def host_trace() -> TraceWriter:
    writer = TraceWriter()
    writer.step(0, 0, 100)
    writer.host(
        "operator", "aten::mm", 5, 50, **{"Input Dims": [[64, 128], [128, 32]], "Input type": ["float", "float"]}
    )
    writer.host("operator", "aten::add", 60, 10)
    return writer


def test_a_trace_without_accelerator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = host_trace().write(tmp_path / "trace.json")
    assert main(["trace", "--full", str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no accelerator work" in shown
    assert "Largest loss: Python and the rest (40.0 us, 40 % of the time)." in shown
    assert "What the host did in the steps time of the steps operators 60.0 us 60 %" in shown
    assert "aten::mm 50.0 us 83 % 1 50.0 us 64x128 128x32" in shown
    assert "aten::add 10.0 us 17 % 1 10.0 us" in shown
    assert main(["trace", "--json", str(path)]) == 0
    (trace,) = json.loads(capsys.readouterr().out)["traces"]
    assert trace["host_time"]["operator_seconds"] == 0.00006
    assert [it["name"] for it in trace["operators"]] == ["aten::mm", "aten::add"]


def test_a_trace_without_step_marks_names_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 5, 50)
    assert main(["trace", "--full", str(writer.write(tmp_path / "trace.json"))]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "a profiler with a `schedule` marks them, at each `profiler.step()`" in shown
    assert "did not call" not in shown
    assert "aten::mm 50.0 us" in shown


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bytes])
def test_standard_input(
    pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped = io.TextIOWrapper(io.BytesIO(pack(kineto_text(host_trace().events))))
    monkeypatch.setattr(sys, "stdin", piped)
    assert main(["trace", "--full", "-"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("standard input\n")
    assert "aten::mm" in shown


def test_a_terminal_as_standard_input_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert main(["trace", "--full", "-"]) == 2
    assert "Standard input is empty." in capsys.readouterr().err


def test_standard_input_that_is_not_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"no trace")))
    assert main(["trace", "--full", "-"]) == 2
    complaint = capsys.readouterr().err
    assert "not JSON" in complaint and "standard input" in complaint


def test_a_file_name_that_is_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.json")
    path.write_bytes(training_trace().write(tmp_path / "trace.json").read_bytes())
    assert main(["trace", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["traces"][0]["facts"]["path"].endswith("caf\ufffd.json")
    assert main(["trace", "--full", str(path)]) == 0


def test_the_page_of_many_traces_is_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = training_trace().write(tmp_path / "0.json").read_bytes()
    slow = TraceWriter()
    slow.launch("first", 0, 10, 100)
    slow.launch("second", 900_000, 900_010, 100)
    for number in range(1, 60):
        (tmp_path / f"{number}.json").write_bytes(text)
    slow.write(tmp_path / "slow.json")
    assert main(["trace", "--full", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "61 traces, of which this one's device was idle longest" in " ".join(shown.split())
    assert "slow.json" in shown
    assert len(shown.splitlines()) < 100
    assert main(["trace", "--json", str(tmp_path)]) == 0
    assert len(json.loads(capsys.readouterr().out)["traces"]) == 61


@pytest.mark.parametrize("ranks", [1, 3, 40])
def test_the_answer_fits_a_screen(
    ranks: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for rank in range(ranks):
        training_trace().write(tmp_path / f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": ranks})
    (tmp_path / "config.json").write_text('{"lr": 1}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["trace", "."]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= 80
    assert lines[2] == "Largest loss: waiting for the data loader (600 us, 25 % of the time)."
    assert "Not read" in "\n".join(lines)
    assert lines[-1] == "  hotlap trace --full .            # the whole account"


def test_tables_are_printed_for_options_about_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(training_trace().write(tmp_path / "trace.json"))
    for options in (["--rows", "40"], ["--instances"]):
        assert main(["trace", *options, path]) == 0
        assert "Waits within each stream" in capsys.readouterr().out


def test_many_files_that_are_no_traces_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training_trace().write(tmp_path / "trace.json")
    for number in range(66):
        (tmp_path / f"config-{number}.json").write_text('{"lr": 1}', encoding="utf-8")
    assert main(["trace", "--full", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "66 files: The file is JSON but no trace: it has no traceEvents. (config-0.json, config-1.json," in shown
    assert "config-9.json" not in shown


def test_files_of_a_study_are_ignored_silently(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "runs" / "0001"
    run.mkdir(parents=True)
    (tmp_path / "journal.jsonl").write_text("{}\n", encoding="utf-8")
    for name in ("study.json", "profile.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    (run / "evidence.json").write_text("{}", encoding="utf-8")
    training_trace().write(run / "window.json.gz")
    assert main(["trace", "--full", str(tmp_path)]) == 0
    assert "Not read" not in capsys.readouterr().out
    (run / "window-1.json.gz").write_bytes(b"\x1f\x8b....")
    assert main(["trace", "--full", str(tmp_path)]) == 0
    assert "window-1.json.gz" in capsys.readouterr().out
