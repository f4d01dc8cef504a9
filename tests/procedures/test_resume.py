"""A search that is interrupted at any moment leaves a valid study, and resuming measures nothing twice."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript, Interrupt

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Kept, Study
from hotlap.study import Journal, create_study, load_study, open_study

SCRIPT = FakeScript(
    effects={
        setting("feed"): Effect(data=0.05),
        setting("half"): Effect(compute=0.5),
        setting("liar"): Effect(compute=0.3, loss=1.01),
        setting("stuck"): Effect(fails="hang"),
    }
)
LEVERS = named(lever("feed", proof="exact"), *(lever(name) for name in ("half", "liar", "stuck", "idle")))
OPTIONS = Options(budget_seconds=900.0)


class Killed(BaseException):
    """In place of kill -9: nothing of the search may run after it."""


def run(journal: Journal, interrupt: Interrupt | None = None) -> tuple[Study, FakeExecutor]:
    executor = FakeExecutor(SCRIPT, interrupt=interrupt)
    study = tune(
        journal.workload, journal.options(Options), executor, journal=journal, levers=LEVERS, clock=executor.clock
    )
    return study, executor


def anonymous(study: Study) -> Study:
    """Without what differs between two studies of the same thing."""
    return msgspec.structs.replace(study, identifier="", started="", directory="")


@pytest.fixture(autouse=True)
def nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of small files are written here; what is on the disk when is tested in test_study.py."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


every_nth = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])


def calls(requests: list[bytes], every: int) -> list[int]:
    """Which calls are cut, by number: the first and last ones, where each is of another kind, and every nth."""
    last = len(requests)
    return [it for it in range(1, last + 1) if it <= 6 or it % every == 0 or it > last - 3]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, list[bytes]]:
    with create_study(tmp_path_factory.mktemp("whole"), WORKLOAD, OPTIONS) as journal:
        study, executor = run(journal)
    assert {it.lever for it in study.plan.settings} == {"feed", "half"}
    return study, executor.requests


@every_nth
def test_killed_at_a_call_and_resumed(tmp_path: Path, uninterrupted: tuple[Study, list[bytes]], every: int) -> None:
    expected, requests = uninterrupted
    for call in calls(requests, every):
        root = tmp_path / str(call)
        with create_study(root, WORKLOAD, OPTIONS) as journal, pytest.raises(Killed):
            run(journal, Interrupt(call, Killed))
        cut = load_study(root)
        assert cut.status == "interrupted" and "--resume" in cut.status_text
        with open_study(root) as journal:
            study, executor = run(journal)
        assert anonymous(study) == anonymous(expected)
        assert anonymous(load_study(root)) == anonymous(expected)
        # Nothing that was answered before the cut was requested again: only the call that was cut is repeated.
        assert Counter(executor.requests) == Counter(requests) - Counter(requests[: call - 1])


def test_killed_again_and_again(tmp_path: Path, uninterrupted: tuple[Study, list[bytes]]) -> None:
    expected, requests = uninterrupted
    with create_study(tmp_path, WORKLOAD, OPTIONS) as journal, pytest.raises(Killed):
        run(journal, Interrupt(3, Killed))
    for _ in range(len(requests)):
        try:
            with open_study(tmp_path) as journal:
                study, _ = run(journal, Interrupt(4, Killed))
        except Killed:
            continue
        break
    assert anonymous(study) == anonymous(expected)


@every_nth
def test_interrupted_at_a_call_gives_a_valid_study(
    tmp_path: Path, uninterrupted: tuple[Study, list[bytes]], every: int
) -> None:
    _, requests = uninterrupted
    for call in calls(requests, every):
        root = tmp_path / str(call)
        with create_study(root, WORKLOAD, OPTIONS) as journal:
            study, _ = run(journal, Interrupt(call, KeyboardInterrupt))
        assert study.status == "interrupted"
        assert load_study(root) == study
        kept = {it.setting for it in study.outcomes if isinstance(it.verdict, Kept)}
        assert set(study.plan.settings) == kept
        if kept and study.verification is None:
            assert "not verified" in study.status_text
        if call > 2:
            assert {it.lever for it in study.outcomes} >= {"idle"}


def test_an_interrupted_study_can_be_finished(tmp_path: Path, uninterrupted: tuple[Study, list[bytes]]) -> None:
    expected, _ = uninterrupted
    with create_study(tmp_path, WORKLOAD, OPTIONS) as journal:
        run(journal, Interrupt(12, KeyboardInterrupt))
    with open_study(tmp_path) as journal:
        study, _ = run(journal)
    assert anonymous(study) == anonymous(expected)


def test_a_torn_last_line_costs_one_trial(tmp_path: Path, uninterrupted: tuple[Study, list[bytes]]) -> None:
    expected, requests = uninterrupted
    with create_study(tmp_path, WORKLOAD, OPTIONS) as journal, pytest.raises(Killed):
        run(journal, Interrupt(6, Killed))
    path = journal.directory / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    with open_study(tmp_path) as journal:
        study, executor = run(journal)
    assert anonymous(study) == anonymous(expected)
    assert len(executor.requests) == len(requests) - 4


def test_a_finished_study_is_replayed_without_a_trial(tmp_path: Path) -> None:
    with create_study(tmp_path, WORKLOAD, OPTIONS) as journal:
        first, _ = run(journal)
    with open_study(tmp_path) as journal:
        again, executor = run(journal)
    assert again == first
    assert executor.requests == []
