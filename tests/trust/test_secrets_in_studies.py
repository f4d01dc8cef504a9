"""A secret among a script's arguments: given to the script, and found nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from fake_executor import FakeExecutor

from hotlap.api import Engine
from hotlap.cli.main import main
from hotlap.experiment.options import Options
from hotlap.records import Crashed, LaunchRequest, Machine, Replicate, Run, TurnRequest, Workload
from hotlap.study import JOURNAL, create_study, load_study
from hotlap.study.journal import Journal

SECRET = "hunter2hunter2"
COMMAND = ("train.py", "--wandb-key", SECRET, "--lr", "3e-4")
QUICK = ["tune", "--quiet", "--only", "compile,huge-pages"]


class Seeing(FakeExecutor):
    """Computed trials that record the script's arguments."""

    def __init__(self, interrupt_after: int | None = None) -> None:
        super().__init__(interrupt_after=interrupt_after)
        self.arguments: set[tuple[str, ...]] = set()

    def launch(self, request: LaunchRequest) -> Run:
        self.arguments.add(request.assignment.workload.arguments)
        return super().launch(request)

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.arguments |= {it.workload.arguments for it in request.arms}
        return super().take_turns(request)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("print('training')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(words: list[str], executor: FakeExecutor) -> int:
    return main(words, engine=Engine(executor=lambda directory, isolation: executor))


def files_with_the_secret(folder: Path) -> list[str]:
    return [str(it) for it in folder.rglob("*") if it.is_file() and SECRET.encode() in it.read_bytes()]


def test_a_secret_is_given_to_the_script_and_written_nowhere(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    executor = Seeing()
    assert run([*QUICK, *COMMAND], executor) == 0
    assert executor.arguments == {COMMAND[1:]}
    for words in (
        ["report"],
        ["report", "--json"],
        ["report", "--markdown"],
        ["report", "--html", "page.html"],
        ["history"],
        ["history", "--json"],
        ["export", "csv", "--out", "tables"],
    ):
        assert run(words, executor) == 0
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err and "--wandb-key '***'" in said.out
    assert files_with_the_secret(work) == []
    assert "***" in (work / "page.html").read_text() and "***" in (work / "tables" / "study.csv").read_text()


def test_progress_and_errors_hide_it(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashed = FakeExecutor(ending=Crashed(exit_code=3, error=f"wandb: bad key {SECRET}", output_tail=SECRET))
    assert run(["tune", "--only", "compile", *COMMAND], crashed) == 3
    said = capsys.readouterr()
    assert "wandb: bad key ***" in said.err and SECRET not in said.out + said.err
    assert files_with_the_secret(work) == []


def test_a_resumed_study_repeats_nothing_when_the_command_is_given_again(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Seeing()
    assert run([*QUICK, "--study", "whole", *COMMAND], whole) == 0
    first = Seeing(interrupt_after=6)
    assert run([*QUICK, *COMMAND], first) == 130
    folder = str(next(it.parent for it in Path(".hotlap").glob(f"*/{JOURNAL}")))
    said = " ".join(capsys.readouterr().out.replace("\\\n", "").split())
    assert f"hotlap tune --resume .hotlap/{Path(folder).name} train.py --wandb-key '***' --lr 3e-4" in said

    refused = Seeing()
    assert run(["tune", "--quiet", "--resume", folder], refused) == 2
    assert "does not store the secrets" in capsys.readouterr().err
    assert run(["tune", "--quiet", "--resume", folder, "train.py", "--wandb-key", SECRET], refused) == 2
    assert "made with another command" in capsys.readouterr().err
    assert refused.requests == 0

    second = Seeing()
    assert run(["tune", "--quiet", "--resume", folder, *COMMAND], second) == 0
    assert second.arguments == {COMMAND[1:]}
    assert (first.requests - 1) + second.requests == whole.requests
    assert files_with_the_secret(work / ".hotlap") == []


def test_the_latest_study_goes_on_with_the_command_alone(work: Path) -> None:
    assert run([*QUICK, *COMMAND], Seeing(interrupt_after=6)) == 130
    assert run(["tune", "--quiet", "--resume", *COMMAND], Seeing()) == 0


def test_the_command_must_be_given_where_it_was_given_first(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run([*QUICK, *COMMAND], Seeing(interrupt_after=6)) == 130
    elsewhere = work / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "train.py").write_text("")
    monkeypatch.chdir(elsewhere)
    folder = next(it.parent for it in (work / ".hotlap").glob(f"*/{JOURNAL}"))
    assert run(["tune", "--quiet", "--resume", str(folder), *COMMAND], Seeing()) == 2
    assert "the command was given in" in capsys.readouterr().err


def test_a_study_that_stored_its_secrets_shows_none(tmp_path: Path) -> None:
    """As earlier versions wrote them."""
    workload = Workload(kind="script", target="t.py", arguments=COMMAND[1:], directory="/w", python="python")
    with create_study(tmp_path, workload, Options()) as journal:
        folder = journal.directory
    for name in (JOURNAL, "study.json"):
        path = folder / name
        path.write_bytes(path.read_bytes().replace(b"***", SECRET.encode()))
    assert SECRET not in str(load_study(folder))
    (folder / "study.json").unlink()
    assert SECRET not in str(load_study(folder))


def test_variables_that_are_secrets_are_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    workload = Workload(kind="script", target="t.py", directory="/w", python="python")
    with create_study(tmp_path, workload, Options()) as journal:
        assert isinstance(journal, Journal)
        study = load_study(journal.directory)
        machine = Machine(environment=(("HF_TOKEN", "short"), ("OMP_NUM_THREADS", "4")))
        journal.save(msgspec.structs.replace(study, machine=machine, warnings=(f"sent {SECRET}",)))
        found = load_study(journal.directory)
    assert found.warnings == ("sent ***",)
    assert found.machine.environment == (("HF_TOKEN", "***"), ("OMP_NUM_THREADS", "4"))
