"""The page about levers within one launch on an accelerator is made from the journals of searches."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from bench.gpu import switching

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Replicate, TurnRequest
from hotlap.study import create_study

sys.path.insert(0, str(Path(__file__).parent / "procedures"))

from fake_levers import named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript
from test_together import QUIET, switchable


class WithOutput(FakeExecutor):
    """Each process writes its output to a file of its own, as real ones do."""

    processes = 0

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns, runs = super().take_turns(request), []
        for number, run in enumerate(turns.runs):
            self.processes += 0 if request.one_launch and number else 1
            runs.append(msgspec.structs.replace(run, output_path=f"runs/{self.processes}/output.txt"))
        return msgspec.structs.replace(turns, runs=tuple(runs))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    effects = {setting("half"): Effect(compute=0.5), setting("step"): Effect(optimizer=0.1)}
    executor, levers = WithOutput(FakeScript(effects=effects, **QUIET)), named(switchable("half"), switchable("step"))
    options = Options()
    with create_study(tmp_path, WORKLOAD, options) as journal:
        tune(WORKLOAD, options, executor, journal=journal, levers=levers, clock=executor.clock)
        return Path(journal.directory)


def test_it_shows_each_configuration_and_the_plan_over_launches(study: Path, tmp_path: Path) -> None:
    assert switching.main([str(study), "--out", str(tmp_path / "page")]) == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "nothing (the repeat) | within one launch" in text
    assert "half, step | over launches, 5 replicates" in text
    page = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))
    assert "no accelerator" in page["machine"] and f"machine: {page['machine']}" in text
    (found,) = page["data"]
    over = next(it for it in found["rows"] if it["way"] == "over launches" and it["plan"] == "half, step")
    within = next(it for it in found["rows"] if it["way"] == "within one launch" and it["plan"] == "half, step")
    assert over["count"] == 5 and over["speedup"][1] == pytest.approx(within["speedup"][1], rel=0.03)
    assert str(tmp_path) not in text
