"""``hotlap diff`` from its command line to its output."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from json_documents import assert_valid

sys.path.insert(0, str(Path(__file__).parents[1] / "traces"))
sys.path.insert(0, str(Path(__file__).parents[1] / "compare"))

from building import breakdown, study
from trace_writer import TraceWriter, training_trace

from hotlap.cli.main import main
from hotlap.diagnose import Profile
from hotlap.experiment.options import Options
from hotlap.experiment.profiled_launch import ATTACHMENT
from hotlap.records import Study, Workload
from hotlap.render.brief import MOST_LINES, WIDEST
from hotlap.study import create_study


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def slow_trace(steps: int = 6) -> TraceWriter:
    """Write a ``training_trace`` whose steps end with an idle 500 microseconds and a new kernel."""
    it = TraceWriter()
    for number in range(steps):
        begin = number * 1500
        it.step(number, begin, 1490)
        it.host("operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin + 10, 800)
        for index in range(5):
            it.host("operator", "aten::mm", begin + 880 + index * 10, 9)
            it.launch(f"ampere_sgemm_{index % 2}", begin + 882 + index * 10, begin + 900 + index * 70, 60)
        it.launch("a_new_kernel", begin + 940, begin + 1300, 60)
    return it


def kept_study(root: Path, what: Study, profile: Profile | None = None) -> Path:
    """Write a study in its own folder, as a command does."""
    workload = Workload(kind="script", target="train.py", directory=str(root), python="python")
    with create_study(root, workload, Options()) as journal:
        journal.save(what)
        if profile is not None:
            journal.attach(ATTACHMENT, profile)
    return journal.directory


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the whole report or the document; the answer on one screen fits it."""
    if "--json" not in words:
        assert main(["diff", *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= MOST_LINES and max(map(len, lines)) <= WIDEST
        assert lines[0].startswith("hotlap diff  ") and "hotlap diff --full" in " ".join(lines[-6:])
    assert main(["diff", "--full", *words]) == 0
    return " ".join(capsys.readouterr().out.split())


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["diff", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert len(err.rstrip("\n").split("\n")) == 2
    return err


# ---------------------------------------------------------------------------------------------
# What it shows
# ---------------------------------------------------------------------------------------------


def test_two_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = training_trace(steps=6).write(tmp_path / "before.json.gz")
    after = slow_trace().write(tmp_path / "after.json")
    text = run([str(before), str(after)], capsys)
    assert "998 us, and now takes 1.50 ms" in text
    assert "slower." in text
    assert "most of all waiting for the data loader" in text
    assert "a_new_kernel 0 ms -> 60.0 us; launches 0 -> 1; new" in text


def host_trace(products: int, steps: int = 6) -> TraceWriter:
    """Write steps of 1000 microseconds on the host, with this many products of 100 each."""
    it = TraceWriter()
    for number in range(steps):
        begin = number * 1000 * (1 + (products > 4))
        it.step(number, begin, 990 * (1 + (products > 4)))
        it.host("operator", "aten::add", begin + 10, 50)
        for index in range(products):
            it.host("operator", "aten::mm", begin + 100 + index * 110, 100)
    return it


def test_without_a_device_operators_and_the_host_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = host_trace(products=4).write(tmp_path / "before.json")
    after = host_trace(products=12).write(tmp_path / "after.json")
    text = run([str(before), str(after)], capsys)
    assert "What the host did in a profiled step" in text
    assert "operators and calls: +800 us, 80 % of the change; most of all aten::mm (+800 us, more often)" in text
    assert "aten::mm 400 us -> 1.20 ms; calls 4 -> 12; more often" in text
    assert "aten::add" not in text


def test_json_holds_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = training_trace(steps=6).write(tmp_path / "before.json")
    after = slow_trace().write(tmp_path / "after.json")
    document = json.loads(run(["--json", str(before), str(after)], capsys))
    assert_valid(document)
    assert document["verdict"] == "slower"
    assert document["step"]["before_seconds"] == pytest.approx(0.001, rel=0.01)
    (kernels,) = [it["rows"] for it in document["tables"] if it["table"] == "kernels"]
    assert {it["name"]: it["reason"] for it in kernels}["a_new_kernel"] == "appeared"


def test_folders_of_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("before", "after"):
        for rank in range(2):
            (tmp_path / folder).mkdir(exist_ok=True)
            path = tmp_path / folder / f"rank{rank}.json"
            training_trace(steps=4).write(path, distributedInfo={"rank": rank, "world_size": 2})
    (tmp_path / "after" / "package.json").write_text('{"name": "no trace"}', encoding="utf-8")
    text = run([str(tmp_path / "before"), str(tmp_path / "after")], capsys)
    assert "no clear change" in text
    assert "package.json was left out" in text


def test_two_studies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = kept_study(tmp_path, study((0.1,) * 40))
    after = kept_study(tmp_path, study((0.15,) * 40, data_wait=0.05))
    text = run([str(before), str(after / "study.json")], capsys)
    assert "A step took 100 ms, and now takes 150 ms (+50 %): slower." in text
    assert "data wait: +50.0 ms, 100 % of the change" in text


def test_the_latest_study_of_a_folder_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept_study(tmp_path / "root", study((0.3,) * 40))
    latest = kept_study(tmp_path / "root", study((0.1,) * 40))
    other = kept_study(tmp_path / "elsewhere", study((0.1,) * 40))
    document = json.loads(run(["--json", str(tmp_path / "root"), str(other)], capsys))
    assert document["before"]["path"] == str(latest)
    assert document["step"]["before_seconds"] == pytest.approx(0.1)


def test_a_study_as_one_document_is_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "copied.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(study())))
    assert "study, train.py, 34 steps" in run([str(path), str(path)], capsys)


def test_a_trace_and_a_study_are_compared_by_profiled_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = Profile(breakdowns=(breakdown([1.0] * 6, compute_ms=2.0, name=""),))
    known = kept_study(tmp_path, study((0.0007,) * 40), seen)
    trace = slow_trace().write(tmp_path / "after.json")
    text = run([str(known), str(trace)], capsys)
    assert "1.00 ms, and now takes 1.50 ms" in text, "the profiled step, not the unmodified one of 0.7 ms"
    assert "What the device did in a profiled step" in text


def test_control_characters_in_names_are_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = training_trace(steps=4)
    writer.launch("\x1b[2J[red]evil[/red]\u202e", 3400, 3800, 150)
    evil = writer.write(tmp_path / "evil.json", deviceProperties=[{"id": 0, "name": "\x1b]0;title\x07GPU"}])
    plain = training_trace(steps=4).write(tmp_path / "plain.json")
    assert main(["diff", "--full", str(plain), str(evil)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "[red]evil[/red]" in shown


# ---------------------------------------------------------------------------------------------
# What it refuses
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "empty"),
        (b"no", "neither a study nor a trace"),
        (b'{"a": 1}', "neither a study nor a trace"),
        (b'{"format_version": 1, "workload": 7}', "damaged"),
        (b'{"format_version": 99}', "newer hotlap"),
        (None, "cannot be read"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_files_that_are_neither_trace_nor_study(
    text: bytes | None, says: str, first: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = training_trace().write(tmp_path / "good.json")
    bad = tmp_path / "bad.json"
    if text is not None:
        bad.write_bytes(text)
    words = [str(bad), str(good)] if first else [str(good), str(bad)]
    assert says in complaint(words, capsys)


def test_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    good = training_trace().write(tmp_path / "good.json")
    assert "neither a study nor a trace" in complaint([str(tmp_path / "empty"), str(good)], capsys)


def test_one_path_is_not_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "required" in complaint([str(tmp_path)], capsys)


def test_a_study_that_ended_before_its_account(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = kept_study(tmp_path, msgspec.structs.replace(study(), account_before=None))
    good = training_trace().write(tmp_path / "good.json")
    assert "ended before it measured" in complaint([str(cut), str(good)], capsys)


def test_steps_cannot_be_compared_with_whole_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unmarked = TraceWriter()
    unmarked.launch("matmul", 0, 10, 100)
    words = [str(unmarked.write(tmp_path / "a.json")), str(training_trace().write(tmp_path / "b.json"))]
    said = complaint(words, capsys)
    assert "has no step marks" in said and "a.json" in said
