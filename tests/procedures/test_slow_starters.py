"""Levers that compile, where time is short: they wait for a plan of the others, but not for one that may be noise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from fake_findings import answered_by
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import QUIET, Counting, chosen, outcomes, search, switchable

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Failed, Kept, LaunchRequest, Replicate, Run, Seen, Study, TurnRequest

COMPILED = "compile"
SMALL, CLEAR = Effect(optimizer=0.85), Effect(compute=0.6)


def script(first: Effect, **compiled: object) -> FakeScript:
    slow = Effect(**{"compute": 0.85, "startup_seconds": 25.0, **compiled})  # type: ignore[arg-type]
    return FakeScript(effects={setting("first"): first, setting(COMPILED): slow}, **QUIET)  # type: ignore[arg-type]


class Loading(Counting):
    """After a launch that was alone compiled, others load the code in a tenth of the time, if they may."""

    script: FakeScript

    def take_turns(self, request: TurnRequest) -> Replicate:
        with self.loading(not request.compiles_all):
            return super().take_turns(request)

    def launch(self, request: LaunchRequest) -> Run:
        with self.loading(request.loads_code):
            return super().launch(request)

    @contextmanager
    def loading(self, may_load: bool) -> Iterator[None]:
        whole = self.script
        if may_load and any(it.one_launch and COMPILED in levers(it) for it in self.replicates):
            slow = whole.effects[setting(COMPILED)]
            quick = replace(slow, startup_seconds=slow.startup_seconds / 10)
            self.script = replace(whole, effects={**whole.effects, setting(COMPILED): quick})
        try:
            yield
        finally:
            self.script = whole


def levers(request: TurnRequest) -> set[str]:
    return {it.lever for arm in request.arms for it in arm.plan.settings}


def searched(made: FakeScript, budget_seconds: float, seed: int = 0) -> tuple[Study, Loading]:
    slow = replace(switchable(COMPILED), starts_slowly=True)
    known = named(switchable("first"), switchable("idle"), slow, lever("pages"))
    executor = Loading(made, seed)
    options = Options(budget_seconds=budget_seconds)
    return tune(WORKLOAD, options, executor, levers=known, clock=executor.clock), executor


def compiled_before_fresh_launches(executor: Counting) -> bool:
    """Whether it was measured before any plan was compared with the script."""
    fresh = executor.fresh()
    before = executor.replicates[: executor.replicates.index(fresh[0])] if fresh else executor.replicates
    return any(COMPILED in levers(it) for it in before)


@pytest.mark.parametrize("seed", range(3))
def test_where_the_others_promise_little_it_is_part_of_the_first_plan(seed: int) -> None:
    study, executor = searched(script(SMALL), 330.0, seed)
    assert compiled_before_fresh_launches(executor)
    assert COMPILED in {it.lever for it in executor.fresh()[0].arms[2].plan.settings}
    assert COMPILED in chosen(study) and isinstance(outcomes(study)[COMPILED].verdict, Kept)
    assert study.verification is not None and study.verification.speed.verdict == "faster"
    assert executor.seconds <= 330.0


def test_where_nothing_else_is_promising_it_is_the_first_plan() -> None:
    study, executor = searched(script(Effect()), 330.0)
    assert compiled_before_fresh_launches(executor) and chosen(study) == {COMPILED}
    assert len(executor.fresh()) == 5, "it has no trial before its verification"


def test_a_clear_gain_of_the_others_comes_first() -> None:
    study, executor = searched(script(CLEAR), 330.0)
    assert not compiled_before_fresh_launches(executor) and "first" in chosen(study)
    assert outcomes(study)[COMPILED].verdict is not None


@pytest.mark.parametrize("seconds", [60.0, 120.0, 600.0])
def test_the_others_are_verified_if_it_takes_too_long(seconds: float) -> None:
    effect = Effect(optimizer=0.2)  # 1.09x: not clear, and large enough for fresh launches to show
    study, executor = searched(script(effect, startup_seconds=seconds), 330.0)
    assert chosen(study) == {"first"} and study.verification is not None
    assert study.verification.speed.verdict == "faster" and executor.seconds <= 330.0
    assert COMPILED in outcomes(study), "it is not forgotten"


def test_if_it_fails_the_others_are_verified() -> None:
    study, _ = searched(script(Effect(optimizer=0.2), fails="crash"), 330.0)
    assert chosen(study) == {"first"}
    assert isinstance(outcomes(study)[COMPILED].verdict, Failed)


@pytest.mark.parametrize("budget_seconds", [40.0, 70.0, 110.0, 130.0])
def test_where_there_is_no_time_for_a_proof_a_failure_is_said_and_not_measured_again(budget_seconds: float) -> None:
    study, executor = searched(script(Effect(), fails="crash"), budget_seconds)
    verdict = outcomes(study)[COMPILED].verdict
    assert study.status == "quick-look" and isinstance(verdict, Failed) and "planted" in verdict.reason
    assert sum(COMPILED in levers(it) for it in executor.replicates) == 1


def test_where_its_first_setting_fails_the_next_one_is_measured() -> None:
    slow = Effect(compute=0.85, startup_seconds=8.0)
    effects = {setting(COMPILED, choice="first"): replace(slow, fails="crash"), setting(COMPILED, choice="next"): slow}
    both = replace(switchable(COMPILED, "first", "next"), starts_slowly=True)
    made = FakeScript(effects=effects, **QUIET)  # type: ignore[arg-type]
    study, _ = search(made, switchable("idle"), both, budget_seconds=120.0)
    found = outcomes(study)[COMPILED]
    assert isinstance(found.verdict, Seen) and found.setting == setting(COMPILED, choice="next")
    assert found.verdict.speedup > 1.05


@pytest.mark.parametrize("budget_seconds", [130.0, 180.0, 230.0, 280.0])
def test_no_budget_is_overrun_and_what_fits_without_it_is_proved(budget_seconds: float) -> None:
    study, executor = searched(script(Effect(optimizer=0.2)), budget_seconds)
    assert executor.seconds <= budget_seconds
    if executor.fresh():
        assert study.verification is not None and "first" in chosen(study)


@pytest.mark.parametrize(("budget_seconds", "is_a_minute"), [(330.0, True), (900.0, False)])
def test_what_is_compiled_in_a_block_has_the_time_of_a_start_or_a_minute(
    budget_seconds: float, is_a_minute: bool
) -> None:
    """A block that takes longer than a share of what is left counts as a hang: 15 %, but 40 % for a start. Many models
    take more than half a minute to compile: in that time it is not a hang."""
    _, executor = searched(script(SMALL), budget_seconds)
    limits = {COMPILED in levers(it): it.arms[0] for it in executor.replicates if it.one_launch}
    longest = max(limits[True].startup_limit_seconds, 60.0)
    assert limits[True].block_limit_seconds == longest and (longest == 60.0) == is_a_minute
    others = [it.arms[0] for it in executor.replicates if it.one_launch and COMPILED not in levers(it)]
    assert all(it.block_limit_seconds < it.startup_limit_seconds for it in others) and bool(others) == is_a_minute
    assert all(len({arm.block_limit_seconds for arm in it.arms}) == 1 for it in executor.replicates)


@pytest.mark.parametrize("answered", ["first", "pages"])
def test_what_a_process_can_switch_comes_first_if_it_answers_the_main_finding(
    monkeypatch: pytest.MonkeyPatch, answered: str
) -> None:
    """What needs a launch of its own is then measured on top of it: there is no time to measure it twice."""
    answered_by(monkeypatch, [answered], share=0.5)
    _, executor = searched(script(Effect(optimizer=0.2)), 330.0)
    first = executor.replicates[0]
    assert first.one_launch == (answered == "first") and ("pages" in levers(first)) == (answered == "pages")


@pytest.mark.parametrize("budget_seconds", range(60, 240, 12))
def test_what_never_ends_compiling_does_not_overrun_a_budget(budget_seconds: int) -> None:
    """It is measured only if what is left covers the limit of a start, after which it counts as a hang. All the time
    that it takes to start is in the block that never ends."""
    _, executor = searched(script(SMALL, fails="hang", startup_seconds=0.0), float(budget_seconds))
    assert executor.seconds <= budget_seconds + 6 * 0.4  # and what a last round drifts


@pytest.mark.parametrize("seed", range(6))
def test_launches_before_it_leave_it_time(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Where there is no time for three launches as long as that of the combinations, there may be for two."""
    answered_by(monkeypatch, ["second"], share=0.05)
    effects = {
        setting("first"): Effect(optimizer=0.7),
        setting("second"): Effect(compute=0.95),
        setting("bad"): Effect(compute=1.4),
        setting(COMPILED): Effect(compute=0.85, startup_seconds=25.0),
    }
    made = FakeScript(effects=effects, compute=0.06, startup_seconds=3.0, **QUIET)  # type: ignore[arg-type]
    switched = map(switchable, ("first", "second", "idle", "bad", "other"))
    known = named(*switched, replace(switchable(COMPILED), starts_slowly=True), lever("pages"))
    executor = Loading(made, seed)
    study = tune(WORKLOAD, Options(budget_seconds=350.0), executor, levers=known, clock=executor.clock)
    assert COMPILED in chosen(study) and executor.seconds <= 350.0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("budget_seconds", [250.0, 255.0, 265.0])
def test_its_proof_loads_what_its_first_measurement_compiled(budget_seconds: float, seed: int) -> None:
    """A proof that compiled it again would leave no time for the replicates."""
    study, executor = searched(script(SMALL), budget_seconds, seed)
    assert COMPILED in chosen(study) and executor.seconds <= budget_seconds
    proofs = [it for it in executor.launched if COMPILED in {one.lever for one in it.assignment.plan.settings}]
    assert proofs and all(it.loads_code for it in proofs)
