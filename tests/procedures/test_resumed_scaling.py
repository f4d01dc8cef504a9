"""Predictions and comparisons of numbers of processes that are killed and resumed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fake_ranks import Ranks, RanksExecutor, evidence_in
from fake_script import WORKLOAD, FakeScript, Interrupt

from hotlap.errors import HotlapError
from hotlap.experiment.options import Options
from hotlap.procedures.processes import compare_processes
from hotlap.procedures.scale import scale
from hotlap.records import Study
from hotlap.study import create_study, load_study, open_study

ONE = Ranks(processes=1)
PROCEDURES = {"scale": (scale, Options()), "processes": (compare_processes, Options(processes=(1, 2)))}
every_procedure = pytest.mark.parametrize("kind", PROCEDURES)


class Killed(BaseException):
    """In place of kill -9."""


@pytest.fixture(autouse=True)
def nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def made(tmp_path: Path) -> Callable[[Interrupt | None], RanksExecutor]:
    script = FakeScript(cores=2, evidence_paths=(evidence_in(tmp_path),))
    return lambda interrupt: RanksExecutor(script, ONE, interrupt=interrupt)


def anonymous(study: Study) -> Study:
    return msgspec.structs.replace(study, identifier="", started="", directory="")


@every_procedure
def test_killed_at_each_call_and_resumed(
    kind: str, tmp_path: Path, made: Callable[[Interrupt | None], RanksExecutor]
) -> None:
    procedure, options = PROCEDURES[kind]
    executor = made(None)
    with create_study(tmp_path / "whole" / "scale", WORKLOAD, options) as journal:
        expected = procedure(WORKLOAD, options, executor, journal=journal, clock=executor.clock)
    assert expected.status == "finished" and expected.kind == kind
    for call in range(1, len(executor.requests) + 1):
        root = tmp_path / str(call) / "scale"
        cut = made(Interrupt(call, Killed))
        with create_study(root, WORKLOAD, options) as journal, pytest.raises(Killed):
            procedure(WORKLOAD, options, cut, journal=journal, clock=cut.clock)
        killed = load_study(root)
        assert killed.kind == kind and killed.status == "interrupted" and "--resume" in killed.status_text
        again = made(None)
        with open_study(root) as journal:
            study = procedure(journal.workload, options, again, journal=journal, clock=again.clock)
        assert anonymous(study) == anonymous(expected)
        assert Counter(again.requests) == Counter(executor.requests) - Counter(executor.requests[: call - 1])


def test_collectives_that_cannot_be_measured_are_not_measured_again(
    tmp_path: Path, made: Callable[[Interrupt | None], RanksExecutor]
) -> None:
    executor = made(None)
    executor.ranks = Ranks(processes=1, bytes_per_second=0.0)
    with create_study(tmp_path / "scale", WORKLOAD, Options()) as journal, pytest.raises(HotlapError, match="measures"):
        scale(WORKLOAD, Options(), executor, journal=journal, clock=executor.clock)
    again = made(None)
    with open_study(tmp_path / "scale") as journal, pytest.raises(HotlapError, match="measures no collectives"):
        scale(journal.workload, Options(), again, journal=journal, clock=again.clock)
    assert not again.requests, "the journal has the answer, which is an error"
