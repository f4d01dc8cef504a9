"""What training costs before and after, and when what was spent is earned back."""

from __future__ import annotations

import fakes
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.cost import break_even, costs, divided, saved
from hotlap.records import Completed, Crashed, Estimate, PhaseAccount, Plan, Price, Run, Steps, Study

EURO = Price(per_hour=3.6, currency="EUR")
"""A thousandth of a euro per second."""

positive = st.floats(1e-6, 1e6)


@st.composite
def estimates(draw: st.DrawFn, least: float = 1e-3, most: float = 1e3) -> Estimate:
    low, value, high = sorted(draw(st.floats(least, most)) for _ in range(3))
    return Estimate(value=value, low=low, high=high)


def in_order(it: Estimate) -> bool:
    rounding = 1e-9 * max(map(abs, (it.low, it.value, it.high)))
    return it.low <= it.value + rounding and it.value <= it.high + rounding


def gained(speedup: Estimate, **more: object) -> Study:
    """A study of steps of 0.2 s with 20 samples that claims this speedup."""
    verification = fakes.FINISHED.verification
    assert verification is not None
    speed = msgspec.structs.replace(verification.speed, speedup=speedup)
    return msgspec.structs.replace(
        fakes.FINISHED,
        account_before=PhaseAccount(wall=0.2, samples_per_step=20),
        verification=msgspec.structs.replace(verification, speed=speed, **more),
        spent_seconds=100.0,
    )


TWICE = Estimate(value=2.0, low=1.6, high=2.5, unit="x")


def test_a_million_samples() -> None:
    found = costs(gained(TWICE), price=EURO)
    assert found is not None and found.million_before is not None and found.million_after is not None
    assert found.million_before == Estimate(value=10.0, low=10.0, high=10.0, unit="EUR")
    assert found.million_after.value == pytest.approx(5.0)
    assert (found.million_after.low, found.million_after.high) == pytest.approx((4.0, 6.25))
    assert found.tuning_price == pytest.approx(0.1)


def test_what_the_replicates_say_of_the_level_goes_before_the_account_of_one_run() -> None:
    level = Estimate(value=0.02, low=0.019, high=0.021, unit="s")
    found = costs(gained(TWICE, baseline_seconds_per_sample=level))
    assert found is not None and found.seconds_per_sample_after is not None
    assert found.seconds_per_sample_before == level
    assert found.seconds_per_sample_after.value == pytest.approx(0.01)
    assert found.million_before is None and found.tuning_price is None


def test_the_study_is_earned_back() -> None:
    found = costs(gained(TWICE))
    assert found is not None and found.tuning is not None
    assert found.tuning.samples is not None and found.tuning.steps is not None
    # Each sample of 10 ms saves 5 ms: 100 s are 20 000 samples, or 1 000 steps.
    assert found.tuning.samples.value == pytest.approx(20_000)
    assert found.tuning.steps.value == pytest.approx(1_000)
    assert found.tuning.steps.low == pytest.approx(100 / (0.01 - 0.004) / 20)
    assert found.tuning.steps.high == pytest.approx(100 / (0.01 - 0.00625) / 20)
    assert found.startup is None


def test_a_longer_start_is_earned_back_and_belongs_to_a_run() -> None:
    extra = Estimate(value=30.0, low=20.0, high=40.0, unit="s")
    found = costs(gained(TWICE, extra_startup_seconds=extra), price=EURO, samples=100_000)
    assert found is not None and found.startup is not None and found.run is not None
    assert found.startup.steps is not None and found.startup.steps.value == pytest.approx(300)
    assert found.run.seconds_before.value == pytest.approx(1000)
    assert found.run.seconds_after is not None and found.run.seconds_after.value == pytest.approx(530)
    assert (found.run.seconds_after.low, found.run.seconds_after.high) == pytest.approx((420, 665))
    assert found.run.price_after is not None and found.run.price_after.value == pytest.approx(0.53)


def test_a_script_that_was_seen_to_its_end_reports_its_own_samples() -> None:
    steps = Steps(wall_seconds=(0.2,) * 5, samples=(20, 20, 20, 20, 12))
    whole = msgspec.structs.replace(gained(TWICE), baseline=Run(ending=Completed(), steps=steps))
    found = costs(whole)
    assert found is not None and found.run is not None and found.run.samples == 92
    given = costs(whole, samples=1000)
    assert given is not None and given.run is not None and given.run.samples == 1000
    cut = msgspec.structs.replace(whole, baseline=Run(ending=Crashed(exit_code=1), steps=steps))
    without = costs(cut)
    assert without is not None and without.run is None


@pytest.mark.parametrize(
    "study",
    [
        fakes.DISTURBED,
        fakes.NOT_CONFIRMED,
        fakes.NOTHING,
        fakes.PROFILED,
        fakes.INTERRUPTED,
        msgspec.structs.replace(fakes.FINISHED, plan=Plan()),
    ],
)
def test_without_a_claim_there_is_no_after(study: Study) -> None:
    found = costs(study, price=EURO, samples=1000)
    assert found is not None and found.million_before is not None and found.run is not None
    assert found.seconds_per_sample_after is None and found.million_after is None
    assert found.run.seconds_after is None
    assert found.startup is None and found.tuning is None


@pytest.mark.parametrize("account", [None, PhaseAccount(), PhaseAccount(wall=0.2, samples_per_step=0.0)])
def test_nothing_is_said_where_no_sample_was_timed(account: PhaseAccount | None) -> None:
    assert costs(msgspec.structs.replace(fakes.FINISHED, account_before=account), price=EURO) is None


def test_a_gain_that_may_be_none_earns_nothing_back() -> None:
    found = break_even(Estimate(value=1, low=1, high=1), Estimate(value=0.1, low=0.0, high=0.2), 4)
    assert found.samples is None and found.steps is None


def test_a_start_that_may_be_shorter_is_earned_back_at_once_at_best() -> None:
    found = break_even(Estimate(value=-1, low=-3, high=1), Estimate(value=0.1, low=0.1, high=0.1), 4)
    assert found.samples is not None
    assert (found.samples.value, found.samples.low, found.samples.high) == pytest.approx((0, 0, 10))


@given(seconds=positive, speedup=estimates())
def test_before_is_what_is_left_and_what_is_saved(seconds: float, speedup: Estimate) -> None:
    after, less = divided(seconds, speedup), saved(seconds, speedup)
    assert (
        in_order(after) and less.low <= less.value + 1e-9 * after.high and less.value <= less.high + 1e-9 * after.high
    )
    assert after.value + less.value == pytest.approx(seconds, rel=1e-6, abs=1e-6 * after.value)
    assert after.value * speedup.value == pytest.approx(seconds)


@given(spent=estimates(), saving=estimates(), per_step=st.floats(0.5, 1e4))
def test_at_the_break_even_the_seconds_are_back(spent: Estimate, saving: Estimate, per_step: float) -> None:
    found = break_even(spent, saving, per_step)
    assert found.samples is not None and found.steps is not None
    assert in_order(found.samples) and in_order(found.steps)
    assert found.samples.value * saving.value == pytest.approx(spent.value)
    assert found.steps.value * per_step == pytest.approx(found.samples.value)


@given(speedup=estimates(1.001, 100), per_hour=positive, samples=st.integers(1, 10**12))
def test_costs_scale_with_the_price(speedup: Estimate, per_hour: float, samples: int) -> None:
    once = costs(gained(speedup), price=Price(per_hour=per_hour), samples=samples)
    twice = costs(gained(speedup), price=Price(per_hour=2 * per_hour), samples=samples)
    assert once is not None and twice is not None and once.run is not None and twice.run is not None
    for one, two in ((once.million_after, twice.million_after), (once.run.price_after, twice.run.price_after)):
        assert one is not None and two is not None and in_order(one)
        assert two.value == pytest.approx(2 * one.value)
    assert once.million_before is not None and once.million_after is not None
    assert once.million_before.value == pytest.approx(once.million_after.value * speedup.value)


def with_samples_from(source: str, *, trainers: int = 1) -> Study:
    study = gained(TWICE)
    assert study.account_before is not None
    account = msgspec.structs.replace(study.account_before, samples_from=source, trainers=trainers)
    return msgspec.structs.replace(study, account_before=account)


@pytest.mark.parametrize(("source", "counted"), [("loader", True), ("batch", True), ("inputs", False), ("none", False)])
def test_what_is_a_guess_has_no_price(source: str, counted: bool) -> None:
    """A step of a sequence-first model was priced by the 35 of its sequence instead of the 20 of its batch."""
    found = costs(with_samples_from(source), price=EURO, samples=1000)
    assert found is not None and found.counted is counted
    for figure in (found.million_before, found.million_after, found.run):
        assert (figure is not None) is counted
    assert found.tuning_price is not None and found.tuning is not None and found.tuning.steps is not None


def test_the_samples_of_all_trainers_count() -> None:
    found = costs(with_samples_from("loader", trainers=2), price=EURO)
    assert found is not None and found.million_before is not None
    assert found.samples_per_step == 40
    assert found.million_before.value == pytest.approx(5.0), "half of what it costs with 20 samples a step"
