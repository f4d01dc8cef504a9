"""The reported samples per step: their number, and how they were counted."""

from __future__ import annotations

import msgspec
import pytest

from hotlap.records import PhaseAccount, SampleSource
from hotlap.render.account import account_remarks, rate_of


def account(source: SampleSource, *, samples: float = 64, trainers: int = 1) -> PhaseAccount:
    return PhaseAccount(
        wall=0.5,
        phases=(("forward", 0.2), ("backward", 0.3)),
        samples_per_step=samples,
        samples_from=source,
        trainers=trainers,
    )


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (account("loader"), "A step holds 64 samples, by the batch size of its DataLoader."),
        (
            account("loader", trainers=2),
            "A step holds 64 samples in each of 2 processes, by the batch size of its DataLoader.",
        ),
        (account("batch", samples=1), "A step holds 1 sample, by the first dimension of what its DataLoader delivers."),
        (
            account("inputs", samples=35),
            "How many samples a step holds is a guess: 35 samples, by the first dimension of the model's input, which "
            "need not be the batch. Rates and prices of samples are left out.",
        ),
        (
            account("none", samples=1),
            "How many samples a step holds is unknown, so rates and prices of samples are left out.",
        ),
    ],
)
def test_samples_are_shown_with_their_source(of: PhaseAccount, said: str) -> None:
    assert account_remarks(of, None, 1.0) == [said]


def test_an_older_study_has_no_remark() -> None:
    assert account_remarks(account(""), None, 1.0) == []


def test_guessed_samples_give_no_rate_and_all_trainers_count() -> None:
    assert rate_of(account("loader", trainers=2)) == ("samples per second", 256.0)
    assert rate_of(account("")) == ("samples per second", 128.0)
    assert rate_of(account("inputs")) == ("steps per second", 2.0)
    assert rate_of(account("none", samples=1)) == ("steps per second", 2.0)
    calls = msgspec.structs.replace(account("inputs"), phases=(("forward", 0.5),))
    assert rate_of(calls) == ("calls per second", 2.0)
