"""A trial that something outside kills is repeated, and no lever is blamed for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap.errors import ScriptError
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.repeat import MOST_REPETITIONS
from hotlap.experiment.trials import Trials
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Crashed, Failed, LaunchRequest, Machine, Replicate, Run, Steps, Study, TurnRequest
from hotlap.study import create_study, open_study
from hotlap.trial.executor import OneSlot

HALF = setting("half")
SCRIPT = FakeScript(effects={HALF: Effect(compute=0.5)})
LEVERS = named(lever("half"))
KILLED = Crashed(exit_code=-9, error="killed", steps_done=3, killed_from_outside=True)


class Killing(OneSlot):
    """A fake executor whose answers to these calls (from 1, the machine not counted) are runs that were killed."""

    def __init__(self, *calls: int) -> None:
        self.inner = FakeExecutor(SCRIPT)
        self.calls = 0
        self._killed = calls

    def machine(self) -> Machine:
        return self.inner.machine()

    def launch(self, request: LaunchRequest) -> Run:
        run = self.inner.launch(request)
        return msgspec.structs.replace(run, ending=KILLED, steps=Steps()) if self._counted() else run

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = self.inner.take_turns(request)
        if not self._counted():
            return turns
        runs = (*turns.runs[:-1], msgspec.structs.replace(turns.runs[-1], ending=KILLED))
        return Replicate(runs=runs, rounds=((),) * len(runs))

    def _counted(self) -> bool:
        self.calls += 1
        return self.calls in self._killed


def search(executor: Killing, **options: Any) -> Study:
    return tune(WORKLOAD, Options(**options), executor, levers=LEVERS, clock=executor.inner.clock)


@pytest.fixture(scope="module")
def calls() -> int:
    executor = Killing()
    assert search(executor).plan.settings == (HALF,)
    return executor.calls


def test_one_kill_anywhere_changes_nothing_but_a_warning(calls: int) -> None:
    for call in range(1, calls + 1):
        executor = Killing(call)
        study = search(executor)
        assert study.status == "finished"
        assert study.plan.settings == (HALF,)
        assert [it for it in study.warnings if "SIGKILL" in it and it.startswith("One trial was killed")]
        assert executor.calls >= calls  # a pair of replicates may now agree sooner


def test_every_repetition_counts_in_one_warning(calls: int) -> None:
    study = search(Killing(1, 4))
    said = [it for it in study.warnings if "SIGKILL" in it]
    assert len(said) == 1
    assert said[0].startswith("2 trials were killed from outside (SIGKILL) and were repeated.")


def test_a_script_that_is_killed_every_time_is_given_up() -> None:
    executor = Killing(*range(1, 100))
    with pytest.raises(ScriptError, match="failed after 3 training steps") as caught:
        search(executor)
    assert executor.calls == 1 + MOST_REPETITIONS
    assert caught.value.exit_code == -9
    assert "job scheduler" in caught.value.remedy


def test_a_lever_under_which_it_is_killed_every_time_has_failed(calls: int) -> None:
    executor = Killing(*range(6, 1000))
    found = search(executor)
    assert isinstance(found.outcomes[0].verdict, Failed)


def test_nothing_is_repeated_when_the_budget_is_spent() -> None:
    executor = Killing(1, 2, 3)
    trials = Trials(WORKLOAD, Options(budget_seconds=0.001), JournaledExecutor(executor, clock=executor.inner.clock))
    trials.launch(trials.assignment(), steps=10)
    assert executor.calls == 1


def test_a_resumed_study_repeats_nothing_twice(tmp_path) -> None:
    with create_study(tmp_path, WORKLOAD, Options()) as journal:
        first = Killing(2)
        whole = tune(WORKLOAD, Options(), first, journal=journal, levers=LEVERS, clock=first.inner.clock)
    with open_study(tmp_path) as journal:
        second = Killing()
        again = tune(WORKLOAD, Options(), second, journal=journal, levers=LEVERS, clock=second.inner.clock)
    assert second.calls == 0
    assert again.warnings == whole.warnings
    assert again.outcomes == whole.outcomes
