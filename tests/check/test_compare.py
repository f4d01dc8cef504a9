"""A check on scripts made of arithmetic: what passes, what fails, what is inconclusive, and what it costs."""

from __future__ import annotations

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect
from pair import NOW, REVISION, SIDES, Pair, compare

from hotlap.errors import HotlapError, UsageError
from hotlap.machine.label import machine_label
from hotlap.plan import setting
from hotlap.procedures.check.compare import without_plan
from hotlap.records import (
    Against,
    AlignRandomness,
    Completed,
    Crashed,
    Estimate,
    Machine,
    Observe,
    Plan,
    RecordedGain,
    Replicate,
    TimedOut,
    TurnRequest,
)

HALF = setting("halves")
PLAN = Plan(settings=(HALF,))
LEVERS = named(lever("halves"), lever("keeps", proof="exact"))
HERE = Machine(processor="Arithmetic 1", cores=1, memory_bytes=16_000_000_000, library_versions=(("torch", "2.13.0"),))


# -- against a revision -----------------------------------------------------------------------------


def test_nothing_changed() -> None:
    executor = Pair(launch_noise=0.002, round_noise=0.002)
    found = compare(executor)
    assert (found.verdict, found.speed.verdict) == ("passed", "passed")
    assert found.numbers is not None and found.numbers.verdict == "passed"
    assert found.numbers.quality is not None and found.numbers.quality.verdict == "exact"
    assert found.text.startswith("Not slower than at main by 5 % or more: 1.0")
    assert found.speed.at_least is not None and found.speed.at_least > found.speed.limit
    assert {it.workload.directory for it in executor.assignments} == {"/home/ada"}
    assert {it.workload.checkout for it in executor.assignments} == {SIDES.before.checkout, SIDES.now.checkout}


def test_slower_fails() -> None:
    found = compare(Pair(Effect(compute=1.2)))
    assert found.verdict == found.speed.verdict == "failed"
    assert found.numbers is not None and found.numbers.verdict == "passed", "the numbers are compared anyway"
    assert found.speed.judged is not None
    assert found.speed.judged.low < 20 / 22.8 < found.speed.judged.high
    assert "Slower than at main: 0.8" in found.text and "5 % is allowed" in found.text


def test_faster_passes_and_says_so() -> None:
    found = compare(Pair(Effect(compute=0.7)))
    assert found.verdict == "passed"
    assert found.text.startswith("Faster than at main: 1.")


def test_a_slowdown_below_delta_is_no_failure() -> None:
    assert compare(Pair(Effect(compute=1.01), launch_noise=0.002)).verdict == "passed"
    assert compare(Pair(Effect(compute=1.01), launch_noise=0.0001, round_noise=0.0001), delta=0.002).verdict == "failed"


def test_other_losses_fail() -> None:
    found = compare(Pair(Effect(loss=1.01)))
    assert found.speed.verdict == "passed"
    assert found.numbers is not None and found.numbers.verdict == found.verdict == "failed"
    assert "no longer produces the same results" in found.text and "--speed-only" in found.text


def test_another_rounding_does_not() -> None:
    found = compare(Pair(Effect(loss=1 + 1e-6)))
    assert found.verdict == "passed"
    assert found.numbers is not None and found.numbers.quality is not None
    assert found.numbers.quality.verdict == "within"
    assert "No difference found within 0.1 %" in found.text


def test_speed_only() -> None:
    executor = Pair(Effect(loss=1.5))
    found = compare(executor, speed_only=True)
    assert (found.verdict, found.numbers) == ("passed", None)
    assert not any(it.instrument(AlignRandomness) is not None for it in executor.assignments)


def test_one_nudge_that_moves_little_by_chance_condemns_no_change() -> None:
    found = compare(Pair(Effect(loss=1.002), nudges={"below": 0.001}))
    assert found.verdict == "passed" and found.numbers is not None and found.numbers.verdict == "passed"
    assert compare(Pair(Effect(loss=1.002), nudges={"below": 0.0005})).verdict == "failed"


def test_numbers_that_cannot_be_compared_are_no_pass() -> None:
    for script in ({"reads_loss": False}, {"repeatable": False}):
        found = compare(Pair(**script))
        assert found.speed.verdict == "passed"
        assert found.verdict == "inconclusive"
        assert "Not verified" in found.text


def test_a_noisy_machine_leaves_it_open() -> None:
    found = compare(Pair(launch_noise=0.3, seed=1))
    assert found.verdict == "inconclusive"
    assert found.speed.comparison is not None and found.speed.comparison.replicates == 8
    assert "Inconclusive whether it became slower than at main" in found.text


def test_a_baseline_that_disagrees_with_itself_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second launch of the past is always slower: something disturbs this machine."""
    take_turns = Pair.take_turns

    def disturbed(self: Pair, request):
        turns = take_turns(self, request)
        first, second, third = turns.rounds
        return msgspec.structs.replace(turns, rounds=(first, tuple(1.3 * it for it in second), third))

    monkeypatch.setattr(Pair, "take_turns", disturbed)
    found = compare(Pair(Effect(compute=1.5)))
    assert found.speed.verdict == found.verdict == "inconclusive"
    assert "No claim about the speed: the baseline measured against itself" in found.text


def test_the_present_script_fails() -> None:
    for how, says in (("crash", "RuntimeError: planted"), ("memory", "ran out of memory"), ("hang", "no progress")):
        found = compare(Pair(Effect(fails=how)))
        assert (found.verdict, found.numbers) == ("failed", None)
        assert found.text.startswith("The current script does not run to completion:") and says in found.text


def test_the_present_script_diverges() -> None:
    found = compare(Pair(Effect(fails="diverge")), speed_only=True)
    assert found.verdict == "failed" and "It diverged" in found.text


def test_the_past_fails() -> None:
    ending = Crashed(exit_code=3, error="ImportError: gone")
    with pytest.raises(HotlapError, match=r"at main cannot be measured.*ImportError: gone") as caught:
        compare(Pair(baseline_ending=ending))
    assert caught.value.exit_code == 2


def test_a_past_that_imports_the_present_is_refused() -> None:
    executor = Pair()
    executor.imported = ("package", "package.model")
    with pytest.raises(UsageError, match=r"still imports the current package, package\.model"):
        compare(executor)


def test_a_script_that_ends_soon_is_compared_in_short_blocks() -> None:
    found = compare(Pair(total_steps=60))
    assert found.speed.comparison is not None and found.numbers is not None
    assert any("ends after 60 steps" in it for it in found.warnings)


class EndsAtOnce(Pair):
    """The present version ends after some steps, before a replicate is complete."""

    steps = 0

    def _run(self, arm, steps, noise):
        run = super()._run(arm, steps, noise)
        if NOW not in arm.plan.settings:
            return run
        cut = {it: getattr(run.steps, it)[: self.steps] for it in run.steps.__struct_fields__}
        return msgspec.structs.replace(run, steps=msgspec.structs.replace(run.steps, **cut), ending=Completed())

    def take_turns(self, request):
        turns = super().take_turns(request)
        return msgspec.structs.replace(turns, rounds=((),) * len(turns.runs))


def test_a_present_that_no_longer_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    found = compare(EndsAtOnce())
    assert (found.speed.verdict, found.verdict) == ("inconclusive", "failed")
    assert "ended without a training step" in found.text


def test_a_present_that_ends_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EndsAtOnce, "steps", 30)
    found = compare(EndsAtOnce())
    assert (found.speed.verdict, found.verdict) == ("inconclusive", "failed")
    assert "ends after a different number of steps" in found.text


def test_both_run_under_the_plan() -> None:
    against = msgspec.structs.replace(REVISION, plan=PLAN, plan_name="hotlap.toml")
    sides = msgspec.structs.replace(SIDES, before_plan=PLAN, now_plan=PLAN)
    executor = Pair(effects={HALF: Effect(compute=0.5)})
    found = compare(executor, against, sides, levers=LEVERS)
    assert found.verdict == "passed"
    timed = [it for it in executor.assignments if not it.instrument(Observe)]
    assert timed and all(it.plan == PLAN for it in timed)


def test_numbers_that_the_replicates_have_shown_are_not_computed_again() -> None:
    executor = Pair()
    compare(executor, parity_steps=30)
    assert not any(it.instrument(AlignRandomness) is not None for it in executor.assignments)
    executor = Pair()
    compare(executor, parity_steps=300)
    assert sum(it.instrument(AlignRandomness) is not None for it in executor.assignments) == 3


# -- the budget -------------------------------------------------------------------------------------


def test_the_budget_is_kept() -> None:
    unlimited = Pair(launch_noise=0.3, seed=1)
    compare(unlimited)
    budget = 0.6 * unlimited.seconds
    executor = Pair(launch_noise=0.3, seed=1)
    found = compare(executor, budget_seconds=budget)
    assert executor.seconds <= budget
    assert found.verdict == "inconclusive" and "the budget ended the measurement" in found.text
    assert found.numbers is not None and found.numbers.verdict == "passed"


def test_a_budget_that_is_too_small_leaves_it_open_and_says_what_it_takes() -> None:
    executor = Pair()
    found = compare(executor, budget_seconds=20)
    assert (found.verdict, found.speed.comparison, found.numbers) == ("inconclusive", None, None)
    assert found.cost is not None and 20 < found.cost.least_seconds < found.cost.most_seconds
    assert executor.seconds <= 20, "nothing was started that cannot be finished"
    found = compare(Pair(), budget_seconds=1.15 * found.cost.least_seconds)
    assert found.speed.comparison is not None


def test_what_it_takes_is_known_before() -> None:
    executor = Pair(launch_noise=0.3, seed=1)
    found = compare(executor)
    assert found.cost is not None and found.speed.comparison is not None and found.speed.comparison.replicates == 8
    assert found.cost.most_seconds == pytest.approx(executor.seconds, rel=0.3)
    assert compare(Pair(), speed_only=True).cost.least_seconds < compare(Pair()).cost.least_seconds
    found = compare(Pair(), budget_seconds=1.2 * found.cost.least_seconds)
    assert any("may end before the last analysis" in it for it in found.warnings)


# -- a busy machine ---------------------------------------------------------------------------------


def test_it_waits_until_others_pause() -> None:
    executor = Pair(others=0.6, calm_after_seconds=20.0)
    found = compare(executor)
    assert (found.verdict, found.disturbances) == ("passed", ())
    executor = Pair(others=0.6, calm_after_seconds=60.0)  # the first replicate is disturbed, and repeated
    found = compare(executor)
    assert found.verdict == "passed" and "speed" not in {it.measured for it in found.disturbances}


def test_what_others_disturbed_to_the_end_is_said() -> None:
    found = compare(Pair(others=0.6))
    assert {it.measured for it in found.disturbances} == {"account", "speed"}
    assert "It was measured while others used 0.6 of 1 core." in found.speed.text
    assert any("The machine was busy" in it for it in found.warnings)


@pytest.mark.parametrize("budget", [90.0, 150.0, 400.0])
def test_waiting_does_not_break_the_budget(budget: float) -> None:
    executor = Pair(others=0.6)
    found = compare(executor, budget_seconds=budget)
    assert executor.seconds <= 1.1 * budget
    assert found.verdict != "failed"
    if found.speed.comparison is None:
        assert "estimated while others used 0.6 of 1 core, and may be less on a quiet machine" in found.text


def test_a_baseline_that_timed_out_is_no_failure() -> None:
    found = compare(Pair(baseline_ending=TimedOut(limit_seconds=9.0, during="startup")))
    assert (found.verdict, found.numbers) == ("inconclusive", None)
    assert "Nothing was compared" in found.text and "It made no progress for 9 s" in found.text


class Hangs(Pair):
    """In its first replicates one arm hangs."""

    replicates = 1
    arm = 2

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        if self.replicates <= 0:
            return turns
        self.replicates -= 1
        runs = list(turns.runs)
        runs[self.arm] = msgspec.structs.replace(runs[self.arm], ending=TimedOut(limit_seconds=9.0, during="block"))
        return msgspec.structs.replace(turns, runs=tuple(runs), rounds=((),) * len(runs))


@pytest.mark.parametrize("arm", [1, 2])
def test_an_arm_that_hung_once_is_repeated(monkeypatch: pytest.MonkeyPatch, arm: int) -> None:
    monkeypatch.setattr(Hangs, "arm", arm)
    assert compare(Hangs()).verdict == "passed"


@pytest.mark.parametrize(("arm", "verdict"), [(1, "inconclusive"), (2, "failed")])
def test_an_arm_that_always_hangs(monkeypatch: pytest.MonkeyPatch, arm: int, verdict: str) -> None:
    """Only the present script's hang counts against the change, not the other side's."""
    monkeypatch.setattr(Hangs, "replicates", 99)
    monkeypatch.setattr(Hangs, "arm", arm)
    found = compare(Hangs())
    assert found.verdict == verdict and "It made no progress for 9 s" in found.text


# -- which phase moved ------------------------------------------------------------------------------


def test_the_phase_that_moved_is_named() -> None:
    found = compare(Pair(Effect(compute=1.3)))
    assert {it.phase for it in found.speed.phases if it.moved} == {"forward", "backward"}
    assert "As a share of the step before, forward takes 10.5 % more" in found.text and "35 % before" in found.text
    found = compare(Pair(Effect(data=3.0)))
    assert "As a share of the step before, data wait takes 40.0 % more" in found.text
    found = compare(Pair(Effect(compute=0.7)))
    assert "forward takes 10.5 % less" in found.text


def test_no_phase_is_named_where_none_moved() -> None:
    found = compare(Pair())
    assert len(found.speed.phases) == 6 and not any(it.moved for it in found.speed.phases)
    assert "of the step before" not in found.text and "phase" not in found.text


# -- against a plan ---------------------------------------------------------------------------------


def recorded(value: float, *, half: float = 0.02, machine: str = machine_label(HERE)) -> RecordedGain:
    speedup = Estimate(value=value, low=value * (1 - half), high=value * (1 + half), unit="x")
    return RecordedGain(speedup=speedup, confidence=0.95, replicates=5, machine=machine)


def of_plan(gain: RecordedGain | None, plan: Plan = PLAN) -> Against:
    return Against(kind="plan", name="hotlap.toml", plan=plan, plan_name="hotlap.toml", recorded=gain)


def check_plan(gain: RecordedGain | None, effect: Effect, plan: Plan = PLAN, **script: object):
    against = of_plan(gain, plan)
    executor = Pair(effects=dict.fromkeys(plan.settings, effect), machine=HERE, **script)
    return compare(executor, against, without_plan(WORKLOAD, against), levers=LEVERS)


FASTER = 20 / 13  # compute halved: 4 + 7 + 2 milliseconds instead of 20


def test_the_recorded_gain_is_still_there() -> None:
    found = check_plan(recorded(FASTER), Effect(compute=0.5))
    assert found.verdict == "passed"
    assert "The plan still makes it faster as recorded: 1.5" in found.text
    assert found.speed.judged is not None and found.speed.judged.low < 1 < found.speed.judged.high


def test_the_recorded_gain_is_gone() -> None:
    for effect in (Effect(), Effect(compute=0.75), Effect(compute=1.2)):
        found = check_plan(recorded(FASTER), effect)
        assert found.verdict == found.speed.verdict == "failed"
        assert "The recorded gain is no longer there" in found.text


def test_a_gain_with_a_wide_interval_fails_no_check() -> None:
    assert check_plan(recorded(FASTER, half=0.4), Effect(compute=0.6)).speed.verdict == "inconclusive"


def test_a_gain_from_another_machine_is_not_required() -> None:
    found = check_plan(recorded(3.0, machine="Another, 8 cores"), Effect(compute=0.9))
    assert found.verdict == "passed" and found.against.recorded is None
    assert any("recorded on Another, 8 cores" in it for it in found.warnings)
    assert check_plan(recorded(3.0, machine="Another, 8 cores"), Effect(compute=1.3)).verdict == "failed"


def test_another_torch_is_reported_and_is_no_excuse() -> None:
    found = check_plan(msgspec.structs.replace(recorded(FASTER), torch_version="1.0"), Effect())
    assert found.verdict == "failed"
    assert any("recorded with torch 1.0, and this is torch 2.13.0" in it for it in found.warnings)


def test_a_plan_without_a_record() -> None:
    found = check_plan(None, Effect(compute=0.9))
    assert found.verdict == "passed" and "The plan does not make it slower" in found.text
    assert any("records no gain" in it for it in found.warnings)
    assert "The plan makes it slower" in check_plan(None, Effect(compute=1.3)).text


def test_a_plan_that_no_longer_computes_the_same() -> None:
    found = check_plan(recorded(FASTER), Effect(compute=0.5, loss=1.02))
    assert (found.speed.verdict, found.verdict) == ("passed", "failed")
    assert "--speed-only" not in found.text


def test_an_exact_plan_is_proved_by_the_replicates() -> None:
    plan = Plan(settings=(setting("keeps"),))
    found = check_plan(recorded(FASTER), Effect(compute=0.5), plan)
    assert found.numbers is not None and found.numbers.quality is not None
    assert found.numbers.quality.verdict == "exact"


def test_a_script_that_fails_by_itself() -> None:
    for ending in (Crashed(exit_code=3, error="ValueError: no data"), Completed(exit_code=5)):
        found = check_plan(recorded(FASTER), Effect(), baseline_ending=ending)
        assert found.verdict == "failed" and found.speed.comparison is None


def test_the_marks_of_this_fake_are_no_levers() -> None:
    assert NOW.lever not in LEVERS
