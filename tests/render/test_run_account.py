"""Reports of evaluation, checkpoints and start-up."""

from __future__ import annotations

import msgspec

from hotlap.records import Estimate, OutsidePart, RunAccount
from hotlap.render.run_account import bound_sentence, run_sentences, whole_run_speedup


def share(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(value=value, low=value if low is None else low, high=value if high is None else high)


ACCOUNT = RunAccount(
    steps=150,
    epoch_steps=50,
    step_seconds=0.1,
    step_share=share(0.12),
    outside=(
        OutsidePart(kind="checkpoints", blocks=2, seconds=1.0, every_steps=50.0, at_epoch_ends=True, share=share(0.02)),
        OutsidePart(kind="evaluation", blocks=2, seconds=36.0, every_steps=25.0, share=share(0.86)),
    ),
    startup_seconds=6.0,
    most_speedup=1 / 0.88,
)


def test_the_rest_of_the_run_is_shown_next_to_the_steps_share() -> None:
    assert run_sentences(ACCOUNT) == [
        "Of the run from its first step on, steps take 12 %, evaluation 86 % (36.0 s every 25 steps) and "
        "checkpoints 2 % (1.00 s with every epoch of 50 steps), as 150 steps showed."
    ]
    assert bound_sentence(ACCOUNT) == (
        "Tuning the step can make the whole run at most 1.14x as fast, because steps are 12 % of it (the rest: "
        "evaluation 86 % and checkpoints 2 %)."
    )


def test_start_up_is_reported_for_a_run_observed_to_its_end() -> None:
    whole = msgspec.structs.replace(ACCOUNT, outside=(), step_share=share(1.0), startup_share=0.4, most_speedup=2.5)
    assert run_sentences(whole) == ["Start-up, up to the end of the first step, takes 6.00 s: 40 % of this run."]
    assert "at most 2.50x" in bound_sentence(whole) and "start-up 40 %" in bound_sentence(whole)


def test_a_run_of_steps_alone_is_not_mentioned() -> None:
    alone = RunAccount(steps=150, step_seconds=0.1, step_share=share(1.0))
    assert run_sentences(alone) == [] and bound_sentence(alone) == "" and whole_run_speedup(alone, 2.0) is None


def test_a_pause_seen_once_is_a_bound() -> None:
    once = OutsidePart(kind="evaluation", blocks=1, seconds=4.0, share=share(0.3, 0.0, 0.4))
    account = msgspec.structs.replace(ACCOUNT, outside=(once,), step_share=share(0.7, 0.6, 1.0), most_speedup=None)
    assert run_sentences(account) == [
        "Of the run from its first step on, steps take at least 60 % and evaluation up to 40 % (4.00 s seen once), as "
        "150 steps showed."
    ]
    assert bound_sentence(account) == "" and whole_run_speedup(account, 2.0) is None


def test_the_gain_of_a_step_is_less_for_the_whole_run() -> None:
    halved = msgspec.structs.replace(ACCOUNT, step_share=share(0.5))
    assert whole_run_speedup(halved, 2.0) == 1 / 0.75
