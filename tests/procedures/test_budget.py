"""A budget is kept, ends in an answer, and a recommended one is enough: on fake scripts."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_together import Counting, switchable

from hotlap.errors import ScriptError
from hotlap.experiment.costs import Costs, Shape
from hotlap.experiment.options import Options
from hotlap.gain import recorded_gain
from hotlap.plan import setting
from hotlap.procedures.lab import run_lab
from hotlap.procedures.search import tune
from hotlap.records import (
    Assignment,
    Failed,
    Kept,
    LaunchRequest,
    Observe,
    Parity,
    Plan,
    Replicate,
    Run,
    Seen,
    Setting,
    Skipped,
    Study,
    TimedOut,
    TurnRequest,
)
from hotlap.render.headline import headline

HALF, FEED, SLOW, LATE = setting("half"), setting("feed"), setting("slow"), setting("late")
EFFECTS = {
    HALF: Effect(compute=0.5),
    FEED: Effect(data=0.2),
    SLOW: Effect(compute=1.4),
    LATE: Effect(compute=0.4, startup_seconds=20.0),
}
LEVERS = named(lever("half"), lever("feed", proof="exact"), lever("slow"), lever("late"), lever("idle"))


def script(step: float = 0.02, startup: float = 2.0, **more: Any) -> FakeScript:
    return FakeScript(
        data=0.2 * step, compute=0.7 * step, optimizer=0.1 * step, startup_seconds=startup, effects=EFFECTS, **more
    )


def search(
    world: FakeScript, budget: float | None, *, levers=LEVERS, seed: int = 0, executor=FakeExecutor, **options: Any
) -> tuple[Study, FakeExecutor]:
    made = executor(world, seed=seed)
    study = tune(WORKLOAD, Options(budget_seconds=budget, **options), made, levers=levers, clock=made.clock)
    return study, made


def verdicts(study: Study) -> dict[str, object]:
    return {it.lever: it.verdict for it in study.outcomes}


def claims_nothing(study: Study) -> bool:
    return not study.plan.settings and study.verification is None and recorded_gain(study) is None


STEPS = st.sampled_from([0.002, 0.02, 0.036, 0.1, 0.5, 1.2, 5.0])
STARTS = st.sampled_from([0.5, 3.0, 12.0, 60.0])
BUDGETS = st.sampled_from([5, 20, 30, 60, 120, 240, 370, 600, 1800])


@settings(deadline=None, max_examples=60, derandomize=True)
@given(STEPS, STARTS, BUDGETS, st.integers(0, 20))
@example(5.0, 3.0, 30, 0)
@example(0.036, 60.0, 30, 0)
def test_a_budget_is_kept_and_nothing_affordable_is_left_undone(
    step: float, startup: float, budget: int, seed: int
) -> None:
    """Exceeded by no more than what was running: a start, a step, or the drift of the last round."""
    study, executor = search(script(step, startup), budget, seed=seed)
    begun = startup + 3.0  # the machine's facts take three seconds
    one_round = 6 * max(9 * step, 0.4)
    assert executor.seconds <= max(budget, begun) + 2 * step + one_round
    assert study.account_before is not None and study.account_before.wall > 0
    assert study.status in ("finished", "out-of-budget", "quick-look")
    if study.status == "quick-look":
        assert claims_nothing(study) and study.needed_seconds is not None and study.needed_seconds > budget
    left = budget - executor.seconds
    for it in study.outcomes:
        if isinstance(it.verdict, Skipped) and "Even a look" in it.verdict.reason:
            blocks = 6 * max(3 * step, 0.1)  # three rounds of the shortest blocks, and as much for the warm-up
            assert left < 1.5 * 2 * (startup + 2 * blocks)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(STEPS, STARTS, BUDGETS, st.integers(0, 20))
def test_what_was_advised_is_enough(step: float, startup: float, budget: int, seed: int) -> None:
    world = script(step, startup)
    study, _ = search(world, budget, seed=seed)
    if study.status == "quick-look":
        advised, _ = search(world, study.needed_seconds, seed=seed)
        assert advised.status != "quick-look", f"{study.needed_seconds:.0f} s"
        assert any(not isinstance(it.verdict, (Seen, Skipped)) for it in advised.outcomes)


def test_a_budget_too_short_for_a_proof_ends_with_a_screening() -> None:
    study, _ = search(script(), 60)
    assert study.status == "quick-look" and claims_nothing(study)
    found = verdicts(study)
    assert isinstance(found["half"], Seen)
    assert found["half"].speedup == pytest.approx(1 / 0.65, rel=0.1)
    assert not any(isinstance(it, Kept) for it in found.values())
    assert f"--budget {study.needed_seconds:.0f}s" in study.status_text
    assert "60 s is too small" in study.status_text


def test_a_step_of_five_seconds_does_not_take_a_budget_of_thirty() -> None:
    study, executor = search(script(step=5.0, startup=3.0), 30)
    assert executor.seconds <= 35.0
    assert study.status == "quick-look" and study.account_before is not None
    assert any("the time account is rough" in it for it in study.warnings)


def test_a_start_is_not_cut_off_by_the_budget() -> None:
    """Nothing is known of a script without one start: --startup-limit alone bounds it."""
    limits: list[float] = []

    class Watched(FakeExecutor):
        def launch(self, request: LaunchRequest) -> Run:
            limits.append(request.assignment.startup_limit_seconds)
            return super().launch(request)

    study, _ = search(script(startup=60.0), 30, executor=Watched)
    assert limits[0] == Options().startup_limit_seconds
    assert study.status == "quick-look" and study.account_before is not None


def test_a_requested_screening_tries_nothing_in_any_budget() -> None:
    study, executor = search(script(), 3600, quick=True)
    assert study.status == "quick-look" and study.quick and claims_nothing(study)
    assert isinstance(verdicts(study)["half"], Seen)
    assert executor.seconds < 600
    assert study.profiled_steps == 0  # the fake has no evidence; its launch was made
    assert any(b'"collect-evidence"' in it for it in executor.requests)


@pytest.mark.parametrize(("bound", "is_hidden"), [(1.2, True), (2.0, False), (None, False)])
def test_of_a_look_above_the_levers_bound_only_the_bound_is_shown(bound: float | None, is_hidden: bool) -> None:
    """What only computing half as long can show is more than a bound of 1.2 allows."""
    study, _ = search(script(), 3600, quick=True, levers=named(lever("half", bound=bound)))
    look = verdicts(study)["half"]
    assert isinstance(look, Seen) and look.speedup > 1.4 and look.bound == bound
    assert ("noise hides what it gives" in look.reason) == is_hidden
    answer = headline(study)
    shown = " ".join((answer.sentence, *answer.details))
    assert (f"{look.speedup:.2f}x" in shown) != is_hidden and ("half (1.20x at most)" in shown) == is_hidden


def test_what_a_search_had_no_time_for_is_seen() -> None:
    study, _ = search(script(), 330)
    found = verdicts(study)
    assert any(isinstance(it, Kept) for it in found.values())
    assert study.status == "out-of-budget" and study.needed_seconds is not None and study.needed_seconds > 330
    left = [it for it in found.values() if isinstance(it, (Seen, Skipped))]
    assert left and all("not proved" in it.reason or "Even one replicate" in it.reason for it in left)
    if study.plan.settings:
        assert study.verification is not None


def test_one_lever_is_proved_straight_where_a_trial_before_it_does_not_fit() -> None:
    """No time is reserved for the verification of an empty plan."""
    only = named(lever("feed", proof="exact"))
    trial = 8 * 3  # launches of a trial and of a verification after it
    study, executor = search(script(step=0.05, startup=10.0), 300, levers=only)
    assert study.plan.settings == (FEED,)
    assert study.status == "finished" and study.verification is not None
    assert study.verification.speed.replicates >= 5
    assert isinstance(study.verification.quality, Parity)
    replicates = sum(b'"order_seed"' in it for it in executor.requests)
    assert 3 * replicates < trial


class Disturbed(FakeExecutor):
    """The first run is on a busy machine: its steps take thirty times as long."""

    def launch(self, request: LaunchRequest) -> Run:
        quiet = self.script  # type: ignore[has-type]
        if request.assignment.instrument(Observe):
            self.script = script(step=30 * 0.036, startup=quiet.startup_seconds)
        try:
            return super().launch(request)
        finally:
            self.script = quiet


def test_a_first_run_that_was_disturbed_does_not_count_for_ever() -> None:
    study, _ = search(script(step=0.036, startup=3.0), 360, levers=named(lever("half")), executor=Disturbed)
    assert study.plan.settings == (HALF,)
    assert study.verification is not None


class SlowSet(FakeExecutor):
    """One replicate takes ten times as long as it should."""

    taken = 0

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.taken += 1
        if self.taken != 2:
            return super().take_turns(request)
        quiet, self.script = self.script, script(step=0.36, startup=30.0)  # type: ignore[has-type]
        try:
            return super().take_turns(request)
        finally:
            self.script = quiet


def test_a_disturbed_replicate_does_not_count_for_ever() -> None:
    one = named(lever("half"), lever("feed", proof="exact"))
    study, executor = search(script(step=0.036, startup=3.0), 900, levers=one, executor=SlowSet)
    assert executor.seconds <= 910
    assert study.plan.settings and study.verification is not None


def test_a_lab_does_not_blame_a_lever_for_the_end_of_the_budget() -> None:
    levers = named(lever("mixed-precision"), lever("compile"))
    made = SlowSet(script(step=0.036, startup=3.0))
    study = run_lab(WORKLOAD, Options(budget_seconds=400), made, levers=levers, clock=made.clock)
    assert study.status == "finished" and made.taken >= 3
    assert not any(isinstance(it.verdict, Failed) for it in study.outcomes)


def test_costs_follow_the_median_of_the_last_replicates() -> None:
    costs = Costs(2.0, Shape(step_seconds=1.2))
    arms = [Plan(), Plan(), Plan(settings=(HALF,))]
    world = script(step=0.036)
    quiet = FakeExecutor(world)

    def learn(factor: float) -> float:
        began = quiet.seconds
        options = Options()
        assignments = tuple(_assignment(it, options) for it in arms)
        turns = quiet.take_turns(TurnRequest(arms=assignments, rounds=8))
        costs.learn_replicate(turns, arms, factor * (quiet.seconds - began))
        return costs.of_replicate(arms, 8)

    first = learn(1.0)
    assert costs.shape.step_seconds == pytest.approx(0.036, rel=0.2)
    learn(1.0)
    assert learn(20.0) == pytest.approx(first, rel=0.3)


def test_steps_are_not_expected_to_be_longer_than_they_were_while_observed() -> None:
    costs = Costs(2.0, Shape(step_seconds=0.1))
    costs.learn_watched([0.5, 0.08, 0.08, 0.09, 0.07])
    assert costs.shape.step_seconds == 0.08 and costs.of_steps(100) == pytest.approx(8.0)
    for other in ([0.12] * 5, [0.076] * 5, []):
        costs.learn_watched(other)
        assert costs.shape.step_seconds == 0.08, "observing makes steps longer, and chance as much shorter"


class SlowAtFirst(Counting):
    """Something takes half of the machine while the script is observed for the first time."""

    def launch(self, request: LaunchRequest) -> Run:
        run = super().launch(request)
        if not any(isinstance(it, Observe) for it in request.assignment.instruments):
            return run
        steps = msgspec.structs.replace(run.steps, wall_seconds=tuple(2 * it for it in run.steps.wall_seconds))
        return msgspec.structs.replace(run, steps=steps)


def test_a_disturbed_first_run_does_not_make_launches_shorter() -> None:
    levers = {it: switchable(it) for it in ("one", "two", "three", "four")}
    lengths = []
    for kind in (Counting, SlowAtFirst):
        executor = kind(script(step=0.05, startup=3.0))
        tune(WORKLOAD, Options(budget_seconds=240), executor, levers=levers, clock=executor.clock)
        first = next(it for it in executor.replicates if it.one_launch)
        lengths.append(first.rounds * first.block_seconds)
    assert lengths[0] == lengths[1]


def test_one_launch_starts_each_lever_once() -> None:
    costs, late = Costs(2.0, Shape(step_seconds=0.036)), Plan(settings=(LATE,))
    made = FakeExecutor(FakeScript(effects={LATE: Effect(startup_seconds=20.0)}))
    arms = [Plan(), Plan(), late]
    turns = made.take_turns(TurnRequest(arms=tuple(_assignment(it, Options()) for it in arms), rounds=8))
    costs.learn_replicate(turns, arms, made.seconds)
    more = costs.of_one_launch([late] * 5, 8) - costs.of_one_launch([Plan()] * 5, 8)
    assert more == pytest.approx(20.0, rel=0.3)


def test_what_all_arms_compile_makes_no_other_launch_late() -> None:
    """Whether the arms start beside each other or one after the other."""
    for beside in (True, False):
        costs = Costs(2.0, Shape(step_seconds=0.02), cores=2, slow_levers=["late"])
        plain, base = [Plan()] * 3, Plan(settings=(HALF, LATE))
        arms = [base, Plan(settings=(HALF, LATE, FEED))]

        def learn(plans: list[Plan], costs: Costs = costs, beside: bool = beside) -> None:
            made = FakeExecutor(FakeScript(effects={LATE: Effect(startup_seconds=30.0)}))
            turns = made.take_turns(TurnRequest(arms=tuple(_assignment(it, Options()) for it in plans), rounds=8))
            waited = turns.runs[0].startup_seconds * (len(plans) - 1) if beside else 0.0
            costs.learn_replicate(msgspec.structs.replace(turns, interleaved=beside), plans, made.seconds - waited)

        learn(plain)
        before = costs.of_replicate(plain, 8)
        for _ in range(5):
            learn(arms)
        assert costs.of_replicate(plain, 8) == pytest.approx(before, rel=0.1)
        assert costs.of_replicate([base, base], 8) > 2 * costs.of_replicate(plain[:2], 8)


def test_only_the_first_replicate_is_taken_to_compile() -> None:
    costs = Costs(2.0, Shape(step_seconds=0.02), cores=2, slow_levers=["late"])
    arms = [Plan(), Plan(), Plan(settings=(LATE,))]

    def learn(seconds: float, compiles_all: bool) -> None:
        made = FakeExecutor(FakeScript(effects={LATE: Effect(startup_seconds=seconds)}))
        turns = made.take_turns(TurnRequest(arms=tuple(_assignment(it, Options()) for it in arms), rounds=8))
        costs.learn_replicate(turns, arms, made.seconds, compiles_all=compiles_all)

    def extra(count: int, compiles_all: bool = True) -> float:
        plain = costs.of_replicates([Plan()] * 3, count, 8)
        return costs.of_replicates(arms, count, 8, compiles_all=compiles_all) - plain

    learn(30.0, compiles_all=True)
    assert extra(5) == pytest.approx(30.0 + 4 * 30.0 / 4, rel=0.1), "later ones load what was compiled: not yet known"
    learn(4.0, compiles_all=False)
    assert extra(5) == pytest.approx(30.0 + 4 * 4.0, rel=0.1)
    assert extra(3, compiles_all=False) == pytest.approx(3 * 4.0, rel=0.1), "those that follow the first ones"


def test_what_a_process_that_switches_compiled_is_expected_of_first_runs() -> None:
    costs = Costs(2.0, Shape(step_seconds=0.02), cores=2, slow_levers=["late"])
    late, arms = Plan(settings=(LATE,)), [Plan(), Plan(), Plan(settings=(LATE,))]
    made = FakeExecutor(FakeScript(effects={LATE: Effect(startup_seconds=30.0)}))
    request = TurnRequest(arms=tuple(_assignment(it, Options()) for it in arms), rounds=8)
    turns, switched = (made.take_turns(msgspec.structs.replace(request, one_launch=it)) for it in (False, True))

    def extras() -> tuple[float, float]:
        return (
            costs.of_launch(late, 10) - costs.of_launch(Plan(), 10),
            costs.of_replicates(arms, 5, 8) - costs.of_replicates([Plan()] * 3, 5, 8),
        )

    assert extras() == (0.0, 0.0)
    costs.learn_one_launch(arms, switched)
    assert extras() == pytest.approx((30.0, 30.0 + 4 * 30.0 / 4))
    quick = tuple(msgspec.structs.replace(it, blocks=it.blocks[1:]) for it in switched.runs)
    costs.learn_one_launch(arms, msgspec.structs.replace(switched, runs=quick))
    assert extras() == pytest.approx((30.0, 30.0 + 4 * 30.0 / 4)), "that one loaded the code"
    costs.learn_replicate(turns, arms, made.seconds)
    assert extras()[1] == pytest.approx(5 * 30.0, rel=0.1), "as later ones were seen to start"


def test_launches_of_a_proof_are_expected_to_load_what_a_process_that_switched_compiled() -> None:
    """Where the code is the same: another lever of the model changes it, and one beside the model does not."""
    costs = Costs(2.0, Shape(step_seconds=0.02), slow_levers=["late"], beside_code=["pages"])
    late, pages = Plan(settings=(LATE,)), Plan(settings=(LATE, Setting(lever="pages")))
    rounded = Plan(settings=(LATE, Setting(lever="precision")))
    made = FakeExecutor(FakeScript(effects={LATE: Effect(startup_seconds=30.0)}))
    arms = [Plan(), Plan(), late]
    request = TurnRequest(arms=tuple(_assignment(it, Options()) for it in arms), rounds=8, one_launch=True)

    def extra(plan: Plan, at_once: int = 2) -> float:
        plain = [(Plan(), 10), (Plan(), 10)]
        return costs.of_launches([(Plan(), 10), (plan, 10)], at_once=at_once) - costs.of_launches(
            plain, at_once=at_once
        )

    assert extra(late) == 0.0, "nothing is known of it"
    costs.learn_one_launch(arms, made.take_turns(request))
    assert [extra(late), extra(pages), extra(rounded)] == pytest.approx([30.0 / 4, 30.0 / 4, 30.0])
    assert extra(late, at_once=1) == pytest.approx(30.0 / 4)


def test_a_faster_plan_needs_more_steps_for_its_blocks() -> None:
    """Blocks have a length in seconds; levers on top of a plan are taken to be as fast as it is."""
    costs = Costs(2.0, Shape(step_seconds=0.036))
    half, both = Plan(settings=(HALF,)), Plan(settings=(HALF, FEED))
    made = FakeExecutor(script(step=0.036))

    def steps(*plans: Plan) -> int:
        return costs.steps_of_one_launch(plans, 8)

    before = steps(half, half, both)
    assert before == steps(Plan(), Plan(), half)
    arms = [Plan(), Plan(), half]
    turns = made.take_turns(TurnRequest(arms=tuple(_assignment(it, Options()) for it in arms), rounds=8))
    costs.learn_replicate(turns, arms, made.seconds)
    assert steps(half, half, both) > 1.3 * steps(Plan(), Plan(), Plan())
    assert steps(Plan(), Plan(), Plan()) == pytest.approx(before, rel=0.2)


def _assignment(plan: Plan, options: Options) -> Assignment:
    return Assignment(workload=WORKLOAD, plan=plan, seed=options.seed)


def test_a_hang_at_the_start_names_the_limit_that_struck() -> None:
    world = script()
    world.baseline_ending = TimedOut(limit_seconds=600.0, during="startup")
    with pytest.raises(ScriptError) as caught:
        search(world, 60)
    assert "--startup-limit" in caught.value.remedy


_TOO_LONG = re.compile(r"takes about (\d+) s(?:, or up to (\d+) s .*)?, and (\d+) s of the budget are left\.")


def test_what_was_not_measured_takes_longer_than_what_is_left() -> None:
    """Where the time for its usual case is left, the time that a slow start may take is named."""
    reasons = []
    for budget in range(60, 241, 20):
        study, _ = search(script(startup=12.0), budget)
        reasons += [it.verdict.reason for it in study.outcomes if isinstance(it.verdict, Skipped)]
    found = [[int(it) for it in match.groups(default="0")] for match in map(_TOO_LONG.search, reasons) if match]
    assert any(most for _, most, _ in found) and any(not most for _, most, _ in found)
    for usual, most, left in found:
        assert max(usual, most) >= left
        assert not most or most >= usual
