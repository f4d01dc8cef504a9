"""What a loader without cost would save; and which loaders and rates count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.diagnose.data_wait import (
    CEILING_NOISE,
    computing_seconds_per_sample,
    distinct_datasets,
    distinct_loaders,
    own_rate,
    step_seconds_per_sample,
    taken_from_computing,
    training_loaders,
    waiting,
    working_rates,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.evidence import DatasetProfile, LoaderUse, RunEvidence
from hotlap.records import Ceiling, LoaderFacts, LoaderRate, ModelFacts, PhaseAccount, ScriptFacts, Setting

ACCOUNT = PhaseAccount(
    wall=1.0,
    phases=(
        ("data_wait", 0.4),
        ("forward", 0.6),
    ),
    samples_per_step=10,
)


def model_alone(speedup: float | None) -> tuple[Ceiling, ...]:
    return (Ceiling(name="model-alone", bound_speedup=speedup),)


def test_without_a_ceiling_the_saving_is_the_data_wait() -> None:
    assert waiting(Profile(account=ACCOUNT)) == exactly(0.4)
    assert waiting(Profile(account=ACCOUNT, ceilings=model_alone(None))) == exactly(0.4)
    assert waiting(Profile()) == exactly(0.0)


def test_the_model_alone_bounds_the_saving() -> None:
    share = waiting(Profile(account=ACCOUNT, ceilings=model_alone(1.25)))
    assert share.value == pytest.approx(0.2)
    assert share.low == pytest.approx(1 - (1 + CEILING_NOISE) / 1.25)
    assert share.high == pytest.approx(1 - 1 / (1.25 * (1 + CEILING_NOISE)))


def test_the_data_wait_bounds_the_saving() -> None:
    assert waiting(Profile(account=ACCOUNT, ceilings=model_alone(4.0))) == exactly(0.4)


@given(st.floats(min_value=0.0, max_value=0.1), st.floats(min_value=1.0, max_value=1e6))
def test_the_saving_never_exceeds_either_bound(data_wait: float, speedup: float) -> None:
    account = PhaseAccount(
        wall=0.1,
        phases=(
            ("data_wait", data_wait),
            ("forward", 0.1 - data_wait),
        ),
    )
    share = waiting(Profile(account=account, ceilings=model_alone(speedup)))
    assert 0 <= share.low <= share.value <= share.high <= 1
    assert share.value <= data_wait / 0.1 + 1e-9
    assert share.value <= 1 - 1 / speedup + 1e-9


def test_a_ceiling_of_one_length_is_not_used_for_many_lengths() -> None:
    """Ignore the ceiling of the model alone, which was timed with the first batch only."""
    lengths = tuple((8, 100 + it) for it in range(5))
    facts = ScriptFacts(models=(ModelFacts(kind="Net", parameters=1, input_shapes=lengths),))
    assert waiting(Profile(account=ACCOUNT, facts=facts, ceilings=model_alone(1.0))) == exactly(0.4)


def test_a_smaller_last_batch_is_not_another_length() -> None:
    sizes = tuple((it, 3, 32, 32) for it in range(1, 9))
    facts = ScriptFacts(models=(ModelFacts(kind="Net", parameters=1, input_shapes=sizes),))
    assert waiting(Profile(account=ACCOUNT, facts=facts, ceilings=model_alone(1.0))).value == 0


def test_seconds_per_sample() -> None:
    assert step_seconds_per_sample(Profile(account=ACCOUNT)) == pytest.approx(0.1)
    assert computing_seconds_per_sample(Profile(account=ACCOUNT)) == pytest.approx(0.06)
    assert step_seconds_per_sample(Profile()) == 0


# ---------------------------------------------------------------------------------------------
# Which loader, which rate
# ---------------------------------------------------------------------------------------------

TRAINING = LoaderFacts(dataset="Train", workers=4)
EVALUATION = LoaderFacts(dataset="Test", workers=0)


def test_the_loader_that_was_seen_in_training() -> None:
    facts = ScriptFacts(loaders=(EVALUATION, TRAINING))
    seen = RunEvidence(loaders=(LoaderUse(dataset="Train"),))
    assert training_loaders(Profile(facts=facts, evidence=seen)) == (TRAINING,)
    assert training_loaders(Profile(facts=facts)) == (EVALUATION, TRAINING)
    unknown = RunEvidence(loaders=(LoaderUse(dataset="Other"),))
    assert training_loaders(Profile(facts=facts, evidence=unknown)) == (EVALUATION, TRAINING)


def test_the_loader_whose_batches_a_backward_followed() -> None:
    """Distinguish loaders even if both read a dataset of the same kind."""
    training, evaluation = LoaderFacts(dataset="Digits", trains=True), LoaderFacts(dataset="Digits", trains=False)
    facts = ScriptFacts(loaders=(evaluation, training))
    seen = RunEvidence(loaders=(LoaderUse(dataset="Digits"),))
    assert training_loaders(Profile(facts=facts, evidence=seen)) == (training,)
    assert training_loaders(Profile(facts=facts)) == (training,)


def test_a_loader_recreated_in_every_epoch_counts_once() -> None:
    again = LoaderFacts(dataset="Train", workers=4, draws_random=True)
    facts = ScriptFacts(loaders=(TRAINING, EVALUATION, again))
    assert distinct_loaders(Profile(facts=facts)) == (again, EVALUATION)
    assert len(training_loaders(Profile(facts=facts))) == 2


def test_a_dataset_recreated_in_every_epoch_counts_once() -> None:
    first, other, again = (
        DatasetProfile(dataset=it, samples=8, seconds=s) for it, s in (("A", 1.0), ("B", 2.0), ("A", 3.0))
    )
    assert distinct_datasets(Profile(evidence=RunEvidence(datasets=(first, other, again)))) == (again, other)


def rate(seconds: float = 0.01, error: str = "", **values: int | bool) -> LoaderRate:
    named = tuple(sorted(values.items()))
    return LoaderRate(setting=Setting(lever="loader", values=named), seconds_per_sample=seconds, error=error)


def test_the_scripts_own_rate_is_for_its_own_arguments() -> None:
    pinned = rate(0.1, num_workers=4, prefetch_factor=2, pin_memory=True)
    unpinned = rate(0.2, num_workers=4, prefetch_factor=2, pin_memory=False)
    deep = rate(0.3, num_workers=4, prefetch_factor=4, pin_memory=False)
    alone = rate(0.4, num_workers=0, pin_memory=True)
    profile = Profile(loader_rates=(alone, deep, pinned, unpinned))
    assert own_rate(profile, TRAINING) == unpinned
    assert own_rate(profile, LoaderFacts(dataset="Train", workers=4, pin_memory=True)) == pinned
    assert own_rate(profile, LoaderFacts(dataset="Train", workers=4, prefetch_factor=4, pin_memory=True)) == deep
    assert own_rate(profile, LoaderFacts(dataset="Train")) == alone
    assert own_rate(profile, LoaderFacts(dataset="Train", workers=8)) is None


def test_settings_that_failed_have_no_rate() -> None:
    good = rate(num_workers=1)
    assert working_rates(
        Profile(loader_rates=(rate(num_workers=2, error="OSError"), good, rate(0.0, num_workers=4)))
    ) == (good,)


# ---------------------------------------------------------------------------------------------
# What workers take from the computation
# ---------------------------------------------------------------------------------------------


def of_rounds(speedup: float, low: float, high: float) -> tuple[Ceiling, ...]:
    return (Ceiling(name="model-alone", bound_speedup=speedup, bound_interval=(low, high)),)


def test_what_is_taken_is_neither_wait_nor_the_model_alone() -> None:
    share = taken_from_computing(Profile(account=ACCOUNT, ceilings=of_rounds(4.0, 3.2, 5.0)))
    assert share is not None and share.value == pytest.approx(1 - 0.4 - 0.25)
    assert share.low == pytest.approx(1 - 0.4 - 1 / 3.2) and share.high == pytest.approx(1 - 0.4 - 1 / 5.0)


def test_rounds_that_agree_are_still_of_one_replicate() -> None:
    share = taken_from_computing(Profile(account=ACCOUNT, ceilings=of_rounds(2.5, 2.5, 2.5)))
    assert share is not None
    assert share.low == pytest.approx(0.6 - 0.4 * (1 + CEILING_NOISE))
    assert share.high == pytest.approx(0.6 - 0.4 / (1 + CEILING_NOISE))


def test_without_rounds_nothing_is_known_to_be_taken() -> None:
    assert taken_from_computing(Profile(account=ACCOUNT, ceilings=model_alone(4.0))) is None
    assert taken_from_computing(Profile(account=ACCOUNT)) is None
    facts = ScriptFacts(models=(ModelFacts(kind="Net", parameters=1, input_shapes=tuple((8, it) for it in range(5))),))
    assert taken_from_computing(Profile(account=ACCOUNT, facts=facts, ceilings=of_rounds(4.0, 3.2, 5.0))) is None


@given(st.floats(min_value=0.0, max_value=0.1), st.floats(min_value=1.0, max_value=1e6))
def test_wait_and_what_is_taken_are_all_that_a_loader_costs(data_wait: float, speedup: float) -> None:
    account = PhaseAccount(wall=0.1, phases=(("data_wait", data_wait), ("forward", 0.1 - data_wait)))
    share = taken_from_computing(Profile(account=account, ceilings=of_rounds(speedup, speedup, speedup)))
    assert share is not None and 0 <= share.low <= share.value <= share.high <= 1
    assert share.value == pytest.approx(max(0.0, 1 - data_wait / 0.1 - 1 / speedup), abs=1e-9)
