"""A machine that other processes keep busy: measurements are repeated, or marked as disturbed."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript
from plain_report import plain

from hotlap.diagnose import Profile
from hotlap.diagnose.api import Rule
from hotlap.diagnose.rank import diagnose
from hotlap.diagnose.shares import exactly
from hotlap.experiment.options import Options
from hotlap.experiment.quiet import LONGEST_WAIT_SECONDS
from hotlap.plan import setting
from hotlap.procedures.profile import profile
from hotlap.procedures.search import tune
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    Ceilings,
    CollectEvidence,
    Finding,
    LaunchRequest,
    Limit,
    Machine,
    NoGain,
    Objective,
    Observe,
    Replicate,
    Study,
    TurnRequest,
)
from hotlap.render.headline import headline
from hotlap.render.json import study_json
from hotlap.render.markdown import markdown_report
from hotlap.render.notebook import fragment
from hotlap.study import create_study, load_study, open_study

STEP_SECONDS = 0.020
BUSY = {"others": 0.6, "has_loader": True, "loader_workers": 2}


def look(executor: FakeExecutor, **options: Any) -> Study:
    return profile(WORKLOAD, Options(**options), executor, clock=executor.clock)


def disturbed(study: Study) -> set[str]:
    return {it.measured for it in study.disturbances}


def launches(executor: FakeExecutor) -> list[LaunchRequest]:
    asked = [line for call in executor.requests for line in call.split(b"\n")]
    return [msgspec.json.decode(it, type=LaunchRequest) for it in asked if b'"assignment"' in it]


@pytest.fixture
def one_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of the usual ground, and one that rests on the account alone."""

    def finds(name: str) -> object:
        return lambda profile: [Finding(rule=name, share=exactly(0.3 if name == "usual" else 0.1), title=f"{name}.")]

    made = {
        name: Rule(name, name, name, "host", (), finds(name), {}, {}, ground)  # type: ignore[arg-type]
        for name, ground in (("usual", ("account", "profile")), ("loader", ("loader-alone",)))
    }
    monkeypatch.setattr(sys.modules["hotlap.diagnose.rank"], "all_rules", lambda: made)


def test_a_quiet_machine_costs_nothing() -> None:
    study = look(FakeExecutor(FakeScript(has_loader=True)))
    assert study.disturbances == () and not any("busy" in it for it in study.warnings)


def test_what_others_disturbed_is_measured_again_when_they_pause() -> None:
    """The first run is on a busy machine that calms down within the wait: the study does not use it."""
    executor = FakeExecutor(FakeScript(**BUSY, calm_after_seconds=20.0))
    study = look(executor)
    assert study.account_before is not None and study.account_before.wall == pytest.approx(STEP_SECONDS)
    assert study.baseline is not None and study.baseline.steps.wall_seconds[0] == pytest.approx(STEP_SECONDS)
    assert study.disturbances == () and not any("busy" in it for it in study.warnings)
    assert sum(it.assignment.instrument(Observe) is not None for it in launches(executor)) == 2


def test_a_machine_that_never_calms_down_is_named_with_every_figure(one_cause: None) -> None:
    executor = FakeExecutor(FakeScript(**BUSY))
    study = look(executor, batch_sizes=True)
    assert disturbed(study) == {"account", "loader-alone", "model-alone", "profile", "batch-sizes"}
    assert all(it.words == "others used 0.6 of 1 core" for it in study.disturbances)
    assert [(it.rule, it.disturbed) for it in study.findings] == [("usual", True), ("loader", True)]
    warning = next(it for it in study.warnings if "The machine was busy" in it)
    assert "the time of a step" in warning and "the profiled steps" in warning and "measure again" in warning
    assert sum("The machine was busy" in it for it in study.warnings) == 1
    for page in (plain(study), markdown_report(study), fragment(study)):
        words = " ".join(page.replace("\\", "").split())
        assert "while others used 0.6 of 1 core; other processes may have caused these shares" in words, "the headline"
        assert "on a quiet machine the step may be shorter" in words, "the account"
        assert "may have caused this share" in words, "the finding"
        assert "60.0 ms" in words
    assert "it may differ on a quiet machine" in " ".join(plain(study).split()), "the ceilings"
    assert msgspec.json.decode(study_json(study), type=Study).disturbances == study.disturbances


def test_a_script_is_not_called_clean_on_a_busy_machine(one_cause: None, monkeypatch: pytest.MonkeyPatch) -> None:
    study = msgspec.structs.replace(look(FakeExecutor(FakeScript(**BUSY))), findings=(), profiled_steps=40)
    found = headline(study)
    assert found.tone == "neutral"
    assert found.sentence == "No known cause of lost time was found while others used 0.6 of 1 core: profile again."


def test_waiting_is_bounded() -> None:
    """A machine that never calms down costs a profile one wait, and a measurement with fewer threads."""
    calm = FakeExecutor(FakeScript(has_loader=True))
    look(calm)
    busy = FakeExecutor(FakeScript(**BUSY))
    look(busy)
    assert busy.seconds <= 3 * calm.seconds + 2 * LONGEST_WAIT_SECONDS + 3 * 10.0


@pytest.mark.parametrize("budget", [12.0, 30.0, 60.0, 200.0])
def test_waiting_stays_within_the_budget(budget: float) -> None:
    quiet, busy = FakeExecutor(FakeScript(has_loader=True)), FakeExecutor(FakeScript(**BUSY))
    look(quiet, budget_seconds=budget)
    study = look(busy, budget_seconds=budget)
    assert quiet.seconds <= budget
    assert busy.seconds <= 1.05 * budget, "one launch may take three times what was thought"
    assert "account" in disturbed(study)


@pytest.mark.parametrize(("others", "cores", "left"), [(1.0, 2, 1), (0.6, 2, 1), (1.9, 2, 1), (2.9, 8, 5)])
def test_a_script_is_measured_with_as_many_threads_as_others_leave_cores(
    one_cause: None, others: float, cores: int, left: int
) -> None:
    """Two threads on one free core wait for each other at every operator: by that a sort was no costly operator and a
    copy was one."""
    executor = FakeExecutor(FakeScript(others=others, has_loader=True, cores=cores, threads=cores))
    study = look(executor)
    assert study.threads_left == left and study.baseline is not None and study.baseline.facts.threads == left
    assert study.account_before is not None and study.account_before.wall == pytest.approx(STEP_SECONDS)
    assert disturbed(study) == set() and not any(it.disturbed for it in study.findings)
    later = [it.assignment for it in launches(executor)][-1]
    assert later.instrument(CollectEvidence) and dict(later.plan.settings[0].values) == {"threads": left}
    threads = "1 thread" if left == 1 else f"{left} threads"
    assert any(f"measured with {threads} instead of {cores}" in it for it in study.warnings)
    for page in (plain(study), markdown_report(study), fragment(study)):
        words = " ".join(page.replace("\\", "").split())
        assert f"with {threads}, since others kept the other cores busy" in words, "the headline"
        assert f"20.0 ms with {threads}, since others" in words


def test_a_search_tries_its_arms_with_the_scripts_own_threads() -> None:
    executor = FakeExecutor(FakeScript(others=1.0, cores=2, threads=2))
    study = tune(WORKLOAD, Options(), executor, levers=named(lever("half")), clock=executor.clock)
    assert study.threads_left == 0 and not any(b"cpu-threads" in it for it in executor.requests)


def test_a_script_whose_threads_wait_even_so_is_measured_as_it_is() -> None:
    executor = FakeExecutor(FakeScript(others=1.0, cores=2, threads=2))
    executor._slowdown = lambda arm: 3.0  # type: ignore[method-assign]
    study = look(executor)
    assert study.threads_left == 0 and "account" in disturbed(study)
    assert study.baseline is not None and study.baseline.facts.threads == 2
    assert launches(executor)[-1].assignment.plan.settings == ()


def test_marks_come_from_what_a_finding_rests_on(one_cause: None) -> None:
    found = diagnose(Profile(disturbed=("profile",)))
    assert [(it.rule, it.disturbed) for it in found] == [("loader", False), ("usual", True)], "the sure one goes first"
    assert [it.rule for it in diagnose(Profile())] == ["usual", "loader"]
    assert [it.disturbed for it in diagnose(Profile(disturbed=("loader-alone",)))] == [False, True]


def test_rates_of_the_machine_that_others_slowed_down_are_named() -> None:
    executor = FakeExecutor(FakeScript())
    rates = Ceilings(matmul_flops_per_second=(("cpu:float32", 1e10),), other_load=1.3)
    executor.machine = lambda: Machine(cores=2, ceilings=rates)  # type: ignore[method-assign]
    study = look(executor)
    assert disturbed(study) == {"matmul"}
    assert "Measured while others used 1.3 of 2 cores" in " ".join(plain(study).split())


def test_no_lever_is_passed_over_for_what_others_did() -> None:
    """The loader alone was slow because of other processes: it must not bound a compute lever."""
    levers = named(lever("half", addresses=("unfused-optimizer",)))
    effects = {setting("half"): Effect(compute=0.5)}
    for others in (0.0, 0.6):
        executor = FakeExecutor(FakeScript(has_loader=True, others=others, effects=effects, data=1e-6))
        study = tune(WORKLOAD, Options(), executor, levers=levers, clock=executor.clock)
        assert [it.lever for it in study.plan.settings] == ["half"]
    assert study.verification is not None
    assert "ratios come from arms that took turns" in " ".join(plain(study).split())


def test_an_account_of_the_verification_replaces_a_disturbed_one() -> None:
    levers = named(lever("half"))
    script = FakeScript(others=0.6, calm_after_seconds=150.0, effects={setting("half"): Effect(compute=0.5)})
    executor = FakeExecutor(script)
    study = tune(WORKLOAD, Options(), executor, levers=levers, clock=executor.clock)
    assert study.account_before is not None and study.account_before.wall == pytest.approx(STEP_SECONDS)
    assert "account" not in disturbed(study)


def test_a_resumed_profile_waits_for_nothing_again(tmp_path: Path) -> None:
    def run(executor: FakeExecutor, *, resume: bool) -> Study:
        opened = open_study(tmp_path) if resume else create_study(tmp_path, WORKLOAD, Options())
        with opened as journal:
            return profile(WORKLOAD, Options(), executor, journal=journal, clock=executor.clock)

    whole = run(FakeExecutor(FakeScript(**BUSY)), resume=False)
    again = FakeExecutor(FakeScript(**BUSY))
    assert run(again, resume=True).disturbances == whole.disturbances
    assert again.requests == [], "all is in the journal"
    assert load_study(tmp_path).disturbances == whole.disturbances
    assert math.isclose(load_study(tmp_path).spent_seconds, whole.spent_seconds)


class SlowLook(FakeExecutor):
    """The first replicate shows its last arm to be slower than it is."""

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        if len(request.arms) > 2:
            return turns
        *others, last = turns.rounds
        return msgspec.structs.replace(turns, rounds=(*others, tuple(1.45 * it for it in last)))


@pytest.mark.parametrize("others", [0.0, 1.8])
def test_a_busy_look_at_a_limit_drops_no_lever(others: float) -> None:
    script = FakeScript(effects={setting("small"): Effect(peak=0.5)}, others=others, cores=2, threads=2)
    goal = Objective(metric=PEAK_BYTES, limits=(Limit(metric=SECONDS_PER_SAMPLE, most=1.1),))
    executor = SlowLook(script)
    study = tune(
        WORKLOAD, Options(objective=goal), executor, levers=named(lever("small", proof="exact")), clock=executor.clock
    )
    (outcome,) = study.outcomes
    if others:
        assert [it.lever for it in study.plan.settings] == ["small"]
    else:
        assert isinstance(outcome.verdict, NoGain) and "1.1x of the script's is allowed" in outcome.verdict.reason
