"""An executor with several slots: replicates run at the same time, with the same decisions as in sequence."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript, Interrupt

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Kept, LaunchRequest, NoGain, Outcome, Slot, Study, TurnRequest
from hotlap.study import Journal, create_study, open_study

SCRIPT = FakeScript(effects={setting("feed"): Effect(data=0.05), setting("half"): Effect(compute=0.5)})
LEVERS = named(lever("feed", proof="exact"), lever("half"), lever("idle"))
OPTIONS = Options(rounds=8)
"""A fixed number of rounds: then requests do not depend on the slots."""


class Backwards(FakeExecutor):
    """What waits on different slots runs when the first answer is needed, the last one first, in the time of the
    longest."""

    def __init__(self, script: FakeScript, slots: int, interrupt: Interrupt | None = None) -> None:
        super().__init__(script, interrupt=interrupt)
        self.names = tuple(Slot(name=f"node {number}") for number in range(slots))
        self.batches: list[list[Slot]] = []
        self.submitted: list[_Answer] = []
        self._waiting: list[_Answer] = []

    def slots(self) -> tuple[Slot, ...]:
        return self.names

    def submit(self, request: LaunchRequest | TurnRequest, slot: Slot) -> Future[Any]:
        ask: Any = self.launch if isinstance(request, LaunchRequest) else self.take_turns
        return self._submitted(partial(ask, request), slot)

    def submit_replicates(self, requests: Sequence[TurnRequest], slot: Slot) -> Future[Any]:
        return self._submitted(partial(self.take_replicates, requests), slot)

    def _submitted(self, ask: Callable[[], Any], slot: Slot) -> Future[Any]:
        answer = _Answer(self, ask, slot)
        self._waiting.append(answer)
        self.submitted.append(answer)
        return answer

    def run_all(self) -> None:
        waiting, self._waiting = [it for it in self._waiting if not it.cancelled()], []
        self.batches.append([it.slot for it in waiting])
        began, longest = self.seconds, 0.0  # type: ignore[has-type]
        for it in reversed(waiting):
            self.seconds = began
            it.set_result(it.ask())
            longest = max(longest, self.seconds - began)
        self.seconds = began + longest


class _Answer(Future[Any]):
    def __init__(self, executor: Backwards, ask: Callable[[], Any], slot: Slot) -> None:
        super().__init__()
        self.executor, self.ask, self.slot = executor, ask, slot

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.executor.run_all()
        return super().result(timeout)


def search(executor: FakeExecutor, journal: Journal | None = None) -> Study:
    return tune(WORKLOAD, OPTIONS, executor, journal=journal, levers=LEVERS, clock=executor.clock)


def what_was_found(study: Study) -> list[Outcome]:
    return [msgspec.structs.replace(it, trial_seconds=0.0) for it in study.outcomes]


@pytest.fixture(autouse=True)
def nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("slots", [2, 3, 5])
def test_several_slots_decide_as_one(slots: int) -> None:
    alone, together = FakeExecutor(SCRIPT), Backwards(SCRIPT, slots)
    expected, found = search(alone), search(together)
    assert what_was_found(found) == what_was_found(expected)
    assert [it.verdict for it in found.outcomes if it.lever == "idle" and isinstance(it.verdict, NoGain)]
    assert {it.lever for it in found.outcomes if isinstance(it.verdict, Kept)} == {"feed", "half"}
    assert (found.plan, found.verification) == (expected.plan, expected.verification)
    assert together.seconds < alone.seconds


def test_replicates_are_spread_over_the_slots_and_never_cut_between_them() -> None:
    executor = Backwards(SCRIPT, 3)
    search(executor)
    first_looks = [it for it in executor.batches if len(it) == 3]
    assert first_looks and all(it == list(executor.names) for it in first_looks)
    assert all(len(set(it)) == len(it) for it in executor.batches), "one replicate at a time on each slot"


def test_no_more_run_at_once_than_the_next_analysis_needs() -> None:
    executor = Backwards(SCRIPT, 20)
    search(executor)
    assert max(map(len, executor.batches)) == 5  # of a verification


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_study_that_was_cut_goes_on_as_if_it_were_not(tmp_path: Path, every: int) -> None:
    whole = Backwards(SCRIPT, 3)
    expected = search(whole)
    for call in range(2, len(whole.requests) + 1, every):
        root = tmp_path / str(call)
        with create_study(root, WORKLOAD, OPTIONS) as journal, pytest.raises(_Killed):
            search(Backwards(SCRIPT, 3, Interrupt(call, _Killed)), journal)
        later = Backwards(SCRIPT, 3)
        with open_study(root) as journal:
            resumed = search(later, journal)
        assert what_was_found(resumed) == what_was_found(expected)
        assert (resumed.plan, resumed.verification) == (expected.plan, expected.verification)
        assert len(later.requests) <= len(whole.requests)


def test_unwanted_requests_are_cancelled() -> None:
    whole = Backwards(SCRIPT, 3)
    search(whole)
    cancelled = []
    for call in range(2, len(whole.requests) + 1):
        executor = Backwards(SCRIPT, 3, Interrupt(call, _Killed))
        with pytest.raises(_Killed):
            search(executor)
        assert all(it.done() for it in executor.submitted)
        cancelled += [it for it in executor.submitted if it.cancelled()]
    assert cancelled


class _Killed(BaseException):
    """Nothing of the search may run after it."""
