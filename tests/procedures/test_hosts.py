"""A study names the hosts that any of its trials connected to, and what its first run noted."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import LaunchRequest, Replicate, Run, TurnRequest
from hotlap.study import create_study, open_study

NOTE = "wandb was asked to go online by the script; it is disabled in trials."
SCRIPT = FakeScript(effects={setting("feed"): Effect(data=0.05)})
LEVERS = named(lever("feed", proof="exact"))


class Connected(FakeExecutor):
    """Its launches connect to one host, its replicates to another."""

    def launch(self, request: LaunchRequest) -> Run:
        return msgspec.structs.replace(super().launch(request), hosts=("models.example:443",), notes=(NOTE,))

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        runs = tuple(msgspec.structs.replace(it, hosts=("10.1.2.3:5432",)) for it in turns.runs)
        return msgspec.structs.replace(turns, runs=runs)


def test_hosts_of_all_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    executor = Connected(SCRIPT)
    with create_study(tmp_path, WORKLOAD, Options(only=("feed",))) as journal:
        study = tune(WORKLOAD, journal.options(Options), executor, journal=journal, levers=LEVERS, clock=executor.clock)
    assert study.hosts == ("10.1.2.3:5432", "models.example:443")
    assert study.warnings.count(NOTE) == 1
    with open_study(tmp_path) as journal:  # nothing is measured again
        again = FakeExecutor(SCRIPT)
        resumed = tune(WORKLOAD, journal.options(Options), again, journal=journal, levers=LEVERS, clock=again.clock)
    assert resumed.hosts == study.hosts and not again.requests
