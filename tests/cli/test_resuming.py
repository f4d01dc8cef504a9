"""``--resume`` of predictions and of comparisons of numbers of processes, with procedures that only note their call."""

from __future__ import annotations

from pathlib import Path

import fakes
import msgspec
import pytest
from fake_executor import FakeExecutor

from hotlap.api import Engine, OnProgress
from hotlap.cli.main import main
from hotlap.experiment.options import Options
from hotlap.records import Study, StudyKind, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor


class Noted:
    """A procedure whose study stays interrupted."""

    def __init__(self, kind: StudyKind) -> None:
        self.kind = kind
        self.options: list[Options] = []

    def __call__(
        self, workload: Workload, options: Options, journal: Journal, executor: Executor, tell: OnProgress
    ) -> Study:
        self.options.append(options)
        study = msgspec.structs.replace(
            fakes.INTERRUPTED, kind=self.kind, workload=workload, identifier=journal.header.identifier, outcomes=()
        )
        journal.save(study)
        return study


class Procedures:
    """An engine of noted procedures."""

    def __init__(self) -> None:
        self.search, self.scale, self.processes = Noted("search"), Noted("scale"), Noted("processes")

    def main(self, *words: str) -> int:
        engine = Engine(
            executor=lambda directory, isolation: FakeExecutor(),
            search=self.search,
            scale=self.scale,
            processes=self.processes,
        )
        return main([words[0], "--quiet", *words[1:]], engine=engine)


def test_a_prediction_continues_with_its_own_options(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Procedures()
    assert made.main("scale", "--gpus-per-node", "3", "--node-link", "1GB/s", "train.py") == 130
    folder = next((work / ".hotlap" / "scale").iterdir())
    assert f"hotlap scale --resume .hotlap/scale/{folder.name}" in " ".join(capsys.readouterr().out.split())
    assert made.main("scale", "--resume") == 130
    assert made.main("scale", "--resume", str(folder)) == 130
    assert [it.scale.devices_per_node for it in made.scale.options] == [3, 3, 3]
    assert made.main("scale", "--resume", "--nodes", "2") == 2
    assert "--nodes cannot be given with --resume" in capsys.readouterr().err


def test_a_comparison_of_processes_continues(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Procedures()
    assert made.main("tune", "--nproc", "1,2", "train.py") == 130
    folder = next((work / ".hotlap" / "scale").iterdir())
    assert f"hotlap tune --resume .hotlap/scale/{folder.name}" in " ".join(capsys.readouterr().out.split())
    assert made.main("tune", "--nproc", "1,2", "--resume") == 130
    assert made.main("tune", "--resume", str(folder)) == 130
    assert [it.processes for it in made.processes.options] == [(1, 2)] * 3
    assert not made.search.options
    assert made.main("tune", "--nproc", "1,4", "--resume") == 2
    assert "The study compares 1, 2 processes." in capsys.readouterr().err


def test_a_study_of_another_command_is_not_continued(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Procedures()
    made.main("scale", "train.py")
    folder = next((work / ".hotlap" / "scale").iterdir())
    made.main("tune", "--nproc", "1,2", "train.py")
    capsys.readouterr()
    assert made.main("tune", "--resume", str(folder)) == 2
    assert f"made by `hotlap scale`. Continue it with `hotlap scale --resume {folder}`" in " ".join(
        capsys.readouterr().err.split()
    )
    assert made.main("scale", "--resume") == 130, "the newer study of tune is passed over"
    assert len(made.scale.options) == 2
    assert made.main("tune", "--resume") == 2, "a search is continued, and there is none"
