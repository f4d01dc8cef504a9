"""The benchmark of the procedure: its intervals, its noise model, and that it runs from the command line."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import random
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scipy

from hotlap.experiment.options import Options
from hotlap.levers.api import find
from hotlap.procedures.search import tune
from hotlap.records import Crashed, LaunchRequest, Machine, Replicate, Run, Skipped, TurnRequest
from hotlap.trial.executor import OneSlot

ROOT = Path(__file__).parents[2]


@pytest.fixture
def aa(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of the benchmark, which is next to the package and is not installed."""
    monkeypatch.syspath_prepend(str(ROOT))
    names = ("noise", "procedure", "real", "report", "searches", "placebos", "__main__")
    return SimpleNamespace(**{name.strip("_"): importlib.import_module(f"bench.aa.{name}") for name in names})


@pytest.mark.parametrize(("count", "of"), [(0, 10), (3, 10), (10, 10), (50, 2000)])
def test_wilson_agrees_with_scipy(count: int, of: int, aa: Any) -> None:
    got = aa.report.rate(count, of)
    expected = scipy.stats.binomtest(count, of).proportion_ci(method="wilson")
    assert (got.low, got.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_no_trials_are_no_rate(aa: Any) -> None:
    with pytest.raises(ValueError, match="0 of 0"):
        aa.report.rate(0, 0)


@pytest.mark.parametrize(("count", "of"), [(0, 20), (1, 20), (7, 200), (200, 200)])
def test_exact_intervals_agree_with_scipy(count: int, of: int, aa: Any) -> None:
    got = aa.report.exact_rate(count, of)
    expected = scipy.stats.binomtest(count, of).proportion_ci(method="exact")
    assert (got.low, got.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_noise_has_the_sizes_it_says(aa: Any) -> None:
    source = random.Random(1)
    for scenario in aa.noise.SCENARIOS:
        if scenario.shape == "heavy":
            continue  # its variance converges too slowly for a test
        levels = [aa.noise._launch(source, scenario) for _ in range(4000)]
        assert statistics.stdev(levels) == pytest.approx(scenario.launch, rel=0.1), scenario.name
    quiet = aa.noise.Scenario(name="none", launch=0.0, block=0.0, drift=0.0, spikes=0.0)
    rows = aa.noise.draw_replicate(source, quiet, rounds=3, speedups=(1.0, 2.0))
    assert rows == [[1.0] * 3, pytest.approx([0.5] * 3)]


def test_arms_of_a_round_share_their_drift(aa: Any) -> None:
    drifting = aa.noise.Scenario(name="drift", launch=0.0, block=0.0, drift=0.5, spikes=0.0)
    one, other = aa.noise.draw_replicate(random.Random(1), drifting, rounds=10, speedups=(1.0, 1.0))
    assert one == pytest.approx(other)
    assert statistics.stdev(map(math.log, one)) > 0.1


def test_arms_of_one_launch_have_its_level_in_common(aa: Any) -> None:
    scenario = aa.noise.Scenario(name="launches", launch=0.5, block=0.0, drift=0.0, spikes=0.0)
    one, other = aa.noise.draw_replicate(random.Random(1), scenario, rounds=1, speedups=(1.0, 1.0), one_launch=True)
    assert one == other
    one, other = aa.noise.draw_replicate(random.Random(1), scenario, rounds=1, speedups=(1.0, 1.0))
    assert one != other


def test_a_neighbour_stays_for_many_blocks(aa: Any) -> None:
    scenario = aa.noise.Scenario(name="n", launch=0.0, block=0.0, drift=0.0, spikes=0.0, neighbour=0.25, stays=10.0)
    (row,) = aa.noise.draw_replicate(random.Random(1), scenario, rounds=4000, speedups=(1.0,))
    slow = [it > 1.1 for it in row]
    assert sum(slow) / len(slow) == pytest.approx(0.5, abs=0.1)
    changes = sum(one != other for one, other in itertools.pairwise(slow))
    assert len(row) / changes == pytest.approx(10, rel=0.2)


def test_searches_where_nothing_helps_end_without_a_plan_and_the_others_with_one(aa: Any) -> None:
    """A coarse guard; the benchmark itself runs hundreds of searches."""
    quiet = [it for it in aa.noise.SCENARIOS if it.name == "quiet"]
    found = [it.run() for it in aa.searches.cells(8, 3, quiet, found_studies=4)]
    assert {it.procedure for it in found} == set(aa.searches.PROCEDURES)
    for it in found:
        assert it.plans <= 1 if it.gain == 1 else it.found >= 3, it
    text = aa.report.searches_text(found)
    assert "| quiet | launches alone | " in text and "searches ended with a plan" in text


def test_false_alarms_are_as_rare_as_promised(aa: Any) -> None:
    """A coarse guard; the benchmark itself runs thousands of studies."""
    scenario = next(it for it in aa.noise.SCENARIOS if it.name == "launches 4 %")
    tallies = aa.procedure.simulate(scenario, speedup=1.0, studies=300, seed=7, delta=0.01)
    tallies.append(aa.procedure.simulate_family(scenario, members=4, studies=300, seed=7, delta=0.01))
    for it in tallies:
        assert aa.report.false_alarms(it).low <= 0.05, it
        assert it.mean_replicates <= 8


def test_big_effects_are_found_in_the_right_direction(aa: Any) -> None:
    scenario = next(it for it in aa.noise.SCENARIOS if it.name == "launches 2 %")
    for speedup in (1.2, 1 / 1.2):
        for it in aa.procedure.simulate(scenario, speedup=speedup, studies=60, seed=7, delta=0.01):
            assert aa.report.found(it).value > 0.8
            assert aa.report.wrong_way(it).value == 0


@pytest.mark.slow
def test_the_command_writes_markdown_and_json(aa: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "aa"
    assert aa.main.main(["--out", str(out), "--studies", "4", "--speedups", "1.5", "--searches", "1"]) == 0
    text = out.with_suffix(".md").read_text()
    assert "## Simulated: whole searches" in text
    assert capsys.readouterr().out.strip() in text
    assert "| launches 4 % | analyses after 3 / 5 / 8 |" in text
    document = json.loads(out.with_suffix(".json").read_text())["data"]
    assert {it["speedup"] for it in document["simulated"]} == {1.0, 1.5}
    assert all(sum(it["verdicts"].values()) == it["studies"] == 4 for it in document["simulated"])
    assert document["real"] == []


def test_parts_that_are_not_run_again_are_kept_if_asked(aa: Any, tmp_path: Path) -> None:
    out = tmp_path / "aa"
    words = ["--out", str(out), "--speedups", "--family", "2"]
    aa.main.main([*words, "--studies", "5", "--searches", "0"])
    before = json.loads(out.with_suffix(".json").read_text())
    aa.main.main([*words, "--studies", "0", "--searches", "0", "--keep"])
    after = json.loads(out.with_suffix(".json").read_text())
    assert after["data"]["simulated"] == before["data"]["simulated"] != []
    assert f"By an earlier run ({before['date']}, {before['machine']}): simulated studies of one lever." in (
        out.with_suffix(".md").read_text()
    )


def test_parts_keep_the_date_of_their_own_run(aa: Any, tmp_path: Path) -> None:
    out = tmp_path / "aa"
    common = ["--out", str(out), "--speedups", "--family", "2"]
    aa.main.main([*common, "--studies", "5", "--searches", "0"])
    first = json.loads(out.with_suffix(".json").read_text())
    out.with_suffix(".json").write_text(json.dumps({**first, "date": "2001-02-03"}))
    for _ in range(2):
        aa.main.main([*common, "--studies", "0", "--searches", "0", "--keep"])
    assert f"By an earlier run (2001-02-03, {first['machine']}): simulated" in out.with_suffix(".md").read_text()


def test_too_few_real_replicates_are_refused(aa: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        aa.main.main(["--out", str(tmp_path), "--real", "train.py", "--replicates", "5"])
    assert "at least 8" in capsys.readouterr().err


class Noisy(OneSlot):
    """An executor whose every launch has a level of its own, or whose scripts all crash."""

    def __init__(self, *, crashes: bool = False) -> None:
        self.source = random.Random(2)
        self.crashes = crashes
        self.requests: list[TurnRequest] = []

    def machine(self) -> Machine:
        return Machine()

    def launch(self, request: LaunchRequest) -> Run:
        raise AssertionError("the benchmark takes replicates")

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.requests.append(request)
        if self.crashes:
            return Replicate(runs=(Run(ending=Crashed(exit_code=1, error="boom")),) * 3, rounds=((), (), ()))
        levels = [math.exp(self.source.gauss(0, 0.03)) for _ in request.arms]
        return Replicate(runs=(Run(),) * len(levels), rounds=tuple((level,) * request.rounds for level in levels))


def test_real_replicates_become_studies(aa: Any, tmp_path: Path) -> None:
    executor = Noisy()
    done: list[Any] = []
    workload = aa.real.workload(tmp_path / "train.py", ("--epochs", "1"))
    arms = aa.real.measure(executor, workload, replicates=8, rounds=4, progress=done.append)
    assert done == list(range(1, 9))
    assert len({request.order_seed for request in executor.requests}) == 8
    assert all(len(arm) == 8 and len(arm[0]) == 4 for arm in arms)
    tallies = aa.real.studies_of(arms, resamples=50, seed=1, delta=0.01)
    assert [it.studies for it in tallies] == [50] * len(aa.procedure.PROCEDURES)
    with pytest.raises(ValueError, match="needs 8 replicates"):
        aa.real.studies_of(tuple(arm[:5] for arm in arms), resamples=1, seed=1, delta=0.01)


def test_finished_parts_are_not_measured_again(aa: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor, common = Noisy(), {"replicates": 8, "rounds": 4, "progress": lambda done: None, "pieces": tmp_path}
    workload = aa.real.workload(tmp_path / "train.py", ())
    first = aa.real.measure(executor, workload, **common)
    assert aa.real.measure(executor, workload, **common) == first and len(executor.requests) == 8
    options = ["--out", str(tmp_path / "aa"), "--studies", "2", "--speedups", "1.5", "--searches", "0"]
    command = [*options, "--pieces", str(tmp_path)]
    assert aa.main.main([*command, "--minutes", "0"]) == 75 and not (tmp_path / "aa.md").exists()
    assert aa.main.main(command) == 0
    monkeypatch.setattr(aa.main, "simulate", None)
    assert aa.main.main(command) == 0


def test_searches_with_levers_that_change_nothing_try_all_of_them(aa: Any) -> None:
    quiet = next(it for it in aa.noise.SCENARIOS if it.name == "quiet")
    executor = aa.searches.Disturbed(aa.searches.FakeScript(), quiet, seed=1)
    levers = aa.placebos.levers()
    study = tune(aa.searches.WORKLOAD, Options(), executor, levers=levers, clock=executor.clock)
    tried = {it.lever for it in study.outcomes if not isinstance(it.verdict, Skipped)}
    assert tried == set(levers) and not study.plan.settings
    assert {it.lever for it in aa.placebos.settings() if find(it.lever).switch is not None} == {
        "cpu-threads",
        "channels-last",
        "attention-kernel",
        "cudnn-benchmark",
    }


def test_real_searches_are_counted_with_an_exact_interval(aa: Any) -> None:
    ended = [aa.placebos.Placebo(levers=(), status="finished", seconds=60.0)] * 19
    ended.append(aa.placebos.Placebo(levers=("loader",), status="out-of-budget", seconds=60.0))
    text = aa.report.real_searches_text(ended)
    assert "1 of 20 ended with a plan, 5.0 % (0.1-24.9)" in text and "finished (19), out-of-budget (1)" in text
    assert "- a plan with loader" in text


def test_a_failed_replicate_is_reported(aa: Any, tmp_path: Path) -> None:
    workload = aa.real.workload(tmp_path / "train.py", ())
    with pytest.raises(aa.real.SetFailed, match="boom"):
        aa.real.measure(Noisy(crashes=True), workload, replicates=8, rounds=4, progress=lambda done: None)
