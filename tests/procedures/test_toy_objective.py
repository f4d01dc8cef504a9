"""A search for the smallest peak of memory, through what ``import hotlap`` offers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

import hotlap
from hotlap.api import begin
from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Kept, NoGain, Study

SCRIPT = FakeScript(
    effects={setting("checkpointing"): Effect(peak=0.5, compute=1.1), setting("faster"): Effect(compute=0.8)}
)
LEVERS = named(lever("checkpointing"), lever("faster"))


def found_for(objective: hotlap.Objective, folder: Path) -> Study:
    (folder / "train.py").write_text("")
    executor = FakeExecutor(SCRIPT)
    return begin(
        msgspec.structs.replace(WORKLOAD, target=str(folder / "train.py"), directory=str(folder)),
        Options(objective=objective),
        root=folder / ".hotlap",
        on_progress=lambda progress: None,
        executor=lambda directory, isolation: executor,
        search=lambda workload, options, journal, executor, tell: partial(tune, levers=LEVERS)(
            workload, options, executor, tell, journal=journal
        ),
    )


def test_half_the_memory_for_a_slower_step_only_on_request(tmp_path: Path) -> None:
    slower = hotlap.Limit(metric="seconds_per_sample", most=1.3)
    study = found_for(hotlap.Objective(metric="peak_bytes", limits=(slower,)), tmp_path)
    assert isinstance({it.lever: it.verdict for it in study.outcomes}["checkpointing"], Kept)
    assert [it.lever for it in study.plan.settings] == ["checkpointing"]
    assert hotlap.load_study(study.directory).objective.metric == "peak_bytes"

    usual = found_for(hotlap.Objective(), tmp_path)
    assert isinstance({it.lever: it.verdict for it in usual.outcomes}["checkpointing"], NoGain)
    assert [it.lever for it in usual.plan.settings] == ["faster"]
