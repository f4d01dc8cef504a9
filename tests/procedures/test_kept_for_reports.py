"""What a study keeps for later reports: the losses its plan was judged by, and the loader's rates."""

from __future__ import annotations

from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.profile import profile
from hotlap.procedures.search import tune
from hotlap.records import Study

HALF, FEED = setting("half"), setting("feed", choice="4")
EFFECTS = {HALF: Effect(compute=0.5, loss=1.00001), FEED: Effect(data=0.05)}


def searched(*names: str) -> Study:
    levers = {"half": lever("half"), "feed": lever("feed", "4", proof="exact")}
    executor = FakeExecutor(FakeScript(effects=EFFECTS, has_loader=True))
    return tune(WORKLOAD, Options(), executor, levers=named(*(levers[it] for it in names)), clock=executor.clock)


def test_the_losses_are_those_of_the_proof() -> None:
    study = searched("half")
    assert study.losses is not None and study.verification is not None and study.verification.quality is not None
    assert study.losses.compared_steps == study.verification.quality.steps
    assert study.timings is not None
    rounds = [study.timings.baseline, study.timings.repeat, study.timings.plan]
    assert [len(it) for it in rounds] == 3 * [study.verification.speed.replicates]
    assert {len(row) for it in rounds for row in it} == {study.verification.speed.rounds}
    ratios = {other / one for one, other in zip(study.losses.baseline, study.losses.plan, strict=True)}
    assert max(abs(it - 1.00001) for it in ratios) < 1e-9
    assert all(it > 0 for it in study.losses.allowed)


def test_of_exact_levers_they_are_those_of_the_timing_runs() -> None:
    study = searched("feed")
    assert study.losses is not None
    assert study.losses.baseline == study.losses.plan


def test_without_a_plan_there_are_none() -> None:
    executor = FakeExecutor(FakeScript())
    study = tune(WORKLOAD, Options(), executor, levers=named(lever("idle")), clock=executor.clock)
    assert study.verification is None and study.losses is None and study.timings is None


def test_the_loaders_rates_are_kept_by_a_search_and_by_a_profile() -> None:
    executor = FakeExecutor(FakeScript(has_loader=True))
    profiled = profile(WORKLOAD, Options(), executor, clock=executor.clock)
    for study in (searched("half"), profiled):
        assert study.loader_rates
        own = next(it for it in study.ceilings if it.name == "loader-alone")
        assert own.seconds_per_sample in [it.seconds_per_sample for it in study.loader_rates]
