"""``--quiet`` and ``--json`` on every command: declared by its parser, and kept when it runs."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import fakes
import pytest
from fake_executor import FakeExecutor
from json_documents import assert_valid

sys.path.insert(0, str(Path(__file__).parents[1] / "traces"))

from trace_writer import training_trace

from hotlap.api import Engine
from hotlap.cli.main import COMMANDS, main
from hotlap.experiment.options import Options
from hotlap.render.json import VERSIONS, study_json
from hotlap.study import create_study

WITHOUT_JSON = {
    "run": "standard output belongs to the script that it becomes",
    "completion": "it prints a program of the shell",
    "schema": "it prints JSON by itself",
}

SEARCH = ("--only", "compile,huge-pages")
# For each command, arguments that give an answer without a process, and the exit code.
LINES: dict[str, tuple[tuple[str, ...], int]] = {
    "tune": ((*SEARCH, "train.py"), 0),
    "profile": (("train.py",), 0),
    "batch": (("--max-batch-size", "4", "train.py"), 0),
    "memory": (("train.py",), 0),
    "infer": (("serve:make_model", "--inputs", "serve:make_inputs"), 0),
    "lab": (("train.py",), 0),
    "demo": (SEARCH, 0),
    "nan": (("--steps", "5", "train.py"), 0),
    "report": (("study.json",), 0),
    "history": ((), 0),
    "trace": (("trace.json",), 0),
    "diff": (("trace.json", "trace.json"), 0),
    "doctor": ((), 0),
    "findings": ((), 0),
    "levers": ((), 0),
    "export": (("csv", "study.json"), 0),
    "lint": (("train.py",), 0),
    "rule": ((), 0),
    "new": (("made", "--task", "lm"), 0),
}
# The name of a command's document, if it differs from that of the command.
KINDS = {
    "tune": "study",
    "profile": "study",
    "batch": "study",
    "memory": "study",
    "infer": "study",
    "lab": "study",
    "demo": "study",
    "report": "study",
    "rule": "rules",
}
PAGES = [("findings", "loader-bound"), ("levers", "loader"), ("rule", "HL201")]
# Commands that start processes or print a program; their own tests cover both options.
ELSEWHERE = {"run", "check", "patch", "scale", "completion", "schema"}


@pytest.fixture
def ready(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory with all files that the commands need."""
    (work / "study.json").write_text(study_json(fakes.FINISHED), encoding="utf-8")
    training_trace().write(work / "trace.json")
    with create_study(work / ".hotlap", fakes.WORKLOAD, Options()) as journal:
        journal.save(fakes.FINISHED)
    monkeypatch.setattr("hotlap.cli.demo.WORKLOAD", work / "train.py")
    return work


def run(command: str, *words: str) -> int:
    return main([command, *words], engine=Engine(executor=lambda directory, isolation: FakeExecutor()))


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_declares_quiet_and_json(command: str) -> None:
    known = importlib.import_module(f"hotlap.cli.{command}").parser()._option_string_actions
    assert "--quiet" in known and "--debug" in known
    assert ("--json" in known) is (command not in WITHOUT_JSON), WITHOUT_JSON.get(command, "it has no --json")


def test_every_command_is_tried() -> None:
    assert set(LINES) | ELSEWHERE >= set(COMMANDS), "add the new command to LINES"


@pytest.mark.parametrize("command", sorted(LINES))
def test_json_is_one_document_and_nothing_else(command: str, ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, code = LINES[command]
    assert run(command, "--json", "--quiet", *words) == code
    out, err = capsys.readouterr()
    document = json.loads(out)
    kind = KINDS.get(command, command)
    assert list(document)[:2] == ["document", "document_version"]
    assert (document["document"], document["document_version"]) == (f"hotlap-{kind}", VERSIONS[kind])
    assert_valid(document)
    assert not [it for it in keys(document) if it.endswith(("nanoseconds", "milliseconds", "microseconds"))]
    assert err == ""


def keys(value: object) -> Iterator[str]:
    """Collect all field names of a document."""
    for it in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(it)
    if isinstance(value, dict):
        yield from value


def test_the_docs_name_each_json_document_with_its_version() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    row = r"^\| \[`hotlap-([a-z]+)`\]\(schemas/hotlap-\1-\d+\.schema\.json\) \| (\d+) \|"
    rows = dict(re.findall(row, page, re.MULTILINE))
    assert rows == {kind: str(version) for kind, version in VERSIONS.items()}


@pytest.mark.parametrize("command", sorted(LINES))
def test_quiet_prints_only_errors_on_standard_error(
    command: str, ready: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, code = LINES[command]
    assert run(command, "--quiet", *words) == code
    out, err = capsys.readouterr()
    assert err == ""
    assert out.strip()


@pytest.mark.parametrize(("command", "page"), PAGES)
def test_a_page_as_json_contains_its_text(command: str, page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--json", page) == 0
    found = json.loads(capsys.readouterr().out)
    assert_valid(found)
    assert page in (found["name"], found.get("code"))
    assert len(found["page"]) > 200


def test_errors_are_printed_even_if_quiet(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", "--quiet", "nowhere") == 2
    assert "hotlap: There is no study" in capsys.readouterr().err


def test_quiet_applies_to_one_command_only(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", "--quiet", "csv", "study.json") == 0
    assert run("export", "csv", "study.json") == 0
    assert "hotlap: columns.csv describes" in capsys.readouterr().err


def test_quiet_after_the_script_belongs_to_the_script(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune", *SEARCH, "train.py", "--quiet") == 0
    assert "looking at the machine" in capsys.readouterr().err


def test_quiet_run_prints_no_warning_about_torch(
    ready: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (ready / "hotlap.toml").write_text('[hotlap]\nformat = 1\ntorch = "1.0"\n', encoding="utf-8")
    monkeypatch.setattr("hotlap.trial.in_place.become", lambda *anything: 0)
    for options, said in (((), 1), (("--quiet",), 0)):
        run("run", *options, "train.py")
        assert capsys.readouterr().err.count("was made with torch 1.0") == said
