"""A verification whose replicates take longer than they did still fits: the last ones have shorter blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_levers import named
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import Counting, chosen, switchable

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Replicate, TurnRequest

BUSY = FakeScript(effects={setting("half"): Effect(compute=0.5)}, data=0.0, compute=0.13, startup_seconds=3.5)


class Later(Counting):
    """From the third replicate of a verification on, all arms start later, as they do where others use the cores."""

    script: FakeScript

    def __init__(self, script: FakeScript) -> None:
        super().__init__(script)
        self.rounds: list[tuple[float, ...]] = []

    def take_turns(self, request: TurnRequest) -> Replicate:
        if len(self.fresh()) >= 2:
            self.script = replace(BUSY, startup_seconds=BUSY.startup_seconds + 3.0)
        taken = super().take_turns(request)
        self.rounds.append(taken.rounds[0])
        return taken


@pytest.mark.parametrize("budget_seconds", range(190, 216, 2))
def test_a_verification_that_was_begun_is_ended(budget_seconds: int) -> None:
    executor = Later(BUSY)
    levers = named(switchable("half"))
    study = tune(WORKLOAD, Options(budget_seconds=budget_seconds), executor, levers=levers, clock=executor.clock)
    assert study.status == "finished" and executor.seconds <= budget_seconds
    assert len(executor.fresh()) == 5 and all(len(it) >= 3 for it in executor.rounds[-5:])
    assert study.verification is not None and study.verification.speed.replicates == 5
    if study.verification.speed.baseline_agrees:  # two copies of the script differ by chance, in one of twenty studies
        assert chosen(study) == {"half"} and study.verification.speed.verdict == "faster"


def test_only_the_last_replicates_have_shorter_blocks() -> None:
    executor = Later(BUSY)
    tune(WORKLOAD, Options(budget_seconds=192.0), executor, levers=named(switchable("half")), clock=executor.clock)
    assert [it.block_steps for it in executor.fresh()] == [8, 8, 8, 4, 4]
