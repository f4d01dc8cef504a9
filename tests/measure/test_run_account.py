"""What a run consists of besides its steps: how often it comes, what it costs, and what is only bounded."""

from __future__ import annotations

import pytest

from hotlap.measure.account import account
from hotlap.measure.run_account import run_account
from hotlap.records import Completed, LoaderFacts, Run, RunAccount, ScriptFacts, Steps, Stopped

STEP = 0.1


def a_run(
    steps: int, evaluations: dict[int, float], *, saves: dict[int, float] | None = None, length: int | None = None
) -> Run:
    """Steps of a tenth of a second, with evaluations (seconds by the step that they come before) and checkpoints."""
    evaluated = tuple(evaluations.get(it, 0.0) for it in range(steps))
    saved = tuple((saves or {}).get(it, 0.0) for it in range(steps))
    loader = LoaderFacts(dataset="Digits", batch_size=8, length=length, trains=True)
    return Run(
        ending=Stopped(),
        facts=ScriptFacts(loaders=(loader, LoaderFacts(dataset="Digits", length=3, evaluates=True))),
        startup_seconds=5.0,
        steps=Steps(
            wall_seconds=(STEP,) * steps,
            phases=(("forward", (STEP,) * steps),),
            outside_seconds=tuple(a + b for a, b in zip(evaluated, saved, strict=True)),
            evaluation_seconds=evaluated,
            checkpoint_seconds=saved,
            samples=(16,) * steps,
        ),
    )


def of(run: Run) -> RunAccount:
    found = run_account(run, account(run.steps, skip=6))
    assert found is not None
    return found


def test_what_comes_again_and_again_has_a_rhythm() -> None:
    found = of(a_run(150, {50: 35.0, 100: 37.0}, saves={50: 1.0, 100: 1.0}))
    evaluation, checkpoints = found.outside
    assert (evaluation.kind, evaluation.blocks, evaluation.seconds, evaluation.every_steps) == (
        "evaluation",
        2,
        36.0,
        50.0,
    )
    # For 5 s of steps there are 36 s of evaluation and one of saving.
    assert evaluation.share.value == pytest.approx(36 / 42)
    assert checkpoints.share.value == pytest.approx(1 / 42)
    assert found.step_share.value == pytest.approx(5 / 42)
    assert found.most_speedup == pytest.approx(42 / 37)
    assert found.startup_share is None


def test_what_varies_has_an_interval() -> None:
    share = of(a_run(100, {20: 1.0, 40: 2.0, 60: 3.0})).outside[0].share
    assert share.low < share.value < share.high


def test_what_varies_much_takes_its_shortest_at_least() -> None:
    share = of(a_run(100, {20: 1.0, 40: 1.0, 60: 7.0})).outside[0].share
    # A block of one second for 20 steps of a tenth of a second.
    assert share.low == pytest.approx(1 / 3) and share.value == pytest.approx(3 / 5)


def test_an_evaluation_at_the_end_of_the_first_epoch_comes_with_each() -> None:
    """The loader has 200 batches, of which a step takes two."""
    found = of(a_run(104, {100: 10.0}, length=200))
    (evaluation,) = found.outside
    assert (found.epoch_steps, evaluation.every_steps, evaluation.at_epoch_ends) == (100, 100.0, True)
    assert evaluation.share.value == pytest.approx(0.5)


@pytest.mark.parametrize("length", [None, 90, 1000])
def test_what_was_seen_once_is_only_bounded(length: int | None) -> None:
    found = of(a_run(101, {60: 4.0}, length=length))
    (evaluation,) = found.outside
    assert evaluation.every_steps is None and not evaluation.at_epoch_ends
    # In 60 steps it did not come.
    assert (evaluation.share.low, evaluation.share.high) == (0.0, pytest.approx(4 / 10))
    assert found.step_share.low == pytest.approx(6 / 10) and found.step_share.high == 1.0
    assert found.most_speedup is None, "steps may be all of a longer run"


def test_what_comes_before_the_first_step_is_start_up() -> None:
    found = of(a_run(40, {0: 30.0}))
    assert found.outside == () and found.step_share.value == 1.0


def test_start_up_counts_where_the_run_was_seen_whole() -> None:
    run = a_run(51, {25: 5.0, 50: 5.0}, length=50)
    ended = Run(**{name: getattr(run, name) for name in run.__struct_fields__} | {"ending": Completed()})
    found = of(ended)
    # Five seconds of start-up, five of steps, ten of evaluation.
    assert found.startup_share == pytest.approx(5 / 20)
    assert found.most_speedup == pytest.approx(20 / (5 + 15 * (1 - found.step_share.high)))
    assert of(run).startup_share is None


def test_rollouts_are_distinguished_from_evaluation() -> None:
    run = a_run(30, {})
    steps = Steps(
        wall_seconds=run.steps.wall_seconds, outside_seconds=(0.05,) * 30, samples=run.steps.samples
    )  # as an older study has it
    found = run_account(Run(steps=steps), account(steps, skip=0))
    assert found is not None
    assert [(it.kind, it.every_steps) for it in found.outside] == [("other", 1.0)]
    assert found.outside[0].share.value == pytest.approx(1 / 3)


def test_without_steps_there_is_none() -> None:
    assert run_account(Run(), account(Steps(wall_seconds=(1.0,)), skip=0)) is None
