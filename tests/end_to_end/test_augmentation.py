"""Samples that are augmented at random: workers draw other numbers, and yet their results can be compared."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hotlap import plan as plans_of
from hotlap.levers.support.situations import make_setting
from hotlap.measure.parity.verdict import ParityEvidence, judge
from hotlap.records import (
    AlignRandomness,
    Assignment,
    CaptureGradients,
    ComputeInFloat64,
    Instrument,
    LaunchRequest,
    Parity,
    Plan,
    ReseedAugmentation,
    Run,
    Stopped,
    WithoutDropout,
    Workload,
)
from hotlap.trial.local import LocalExecutor

SCRIPT = Path(__file__).with_name("augmented.py")
STEPS = 40
WORKERS = Plan(
    settings=(make_setting("loader", num_workers=2, pin_memory=False, persistent_workers=True, prefetch_factor=2),)
)
ALIGNED = (WithoutDropout(), AlignRandomness(), CaptureGradients())


def launch(
    folder: Path, plan: Plan = plans_of.EMPTY, instruments: Sequence[Instrument] = ALIGNED, *arguments: str
) -> Run:
    workload = Workload(
        kind="script", target=str(SCRIPT), arguments=arguments, directory=str(folder), python=sys.executable
    )
    steps = 1 if ComputeInFloat64() in instruments else STEPS
    assignment = Assignment(workload=workload, plan=plan, instruments=tuple(instruments))
    run = LocalExecutor(folder / "runs").launch(LaunchRequest(assignment=assignment, steps=steps))
    assert isinstance(run.ending, Stopped), run.ending
    return run


def proof(folder: Path, *arguments: str) -> Parity:
    """Of workers, by the launches that a search makes for it."""
    baseline = launch(folder, plans_of.EMPTY, ALIGNED, *arguments)
    return judge(
        ParityEvidence(
            baseline=baseline,
            baseline_again=baseline,
            candidate=launch(folder, WORKERS, ALIGNED, *arguments),
            proof="rounding",
            reference=launch(folder, plans_of.EMPTY, (*ALIGNED, ComputeInFloat64()), *arguments),
        )
    )


def test_workers_are_proved_although_they_draw_numbers_of_their_own(tmp_path: Path) -> None:
    plain = launch(tmp_path, plans_of.EMPTY, ())
    assert plain.steps.loss[1:] != launch(tmp_path, WORKERS, ()).steps.loss[1:], "they do draw others"
    found = proof(tmp_path)
    assert found.verdict == "within", found.text
    assert [it.found for it in found.gates if it.gate == "G3"] == [0.0]
    assert all(it.passed for it in found.gates), "the batches of both are the same, and so is the first gradient"


def test_a_sample_that_workers_do_not_augment_is_noticed(tmp_path: Path) -> None:
    assert proof(tmp_path, "--forgets").verdict == "lost"


@pytest.mark.parametrize("context", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_workers_that_are_not_forked_are_aligned_too(tmp_path: Path, context: str) -> None:
    assert launch(tmp_path).steps.loss == launch(tmp_path, plans_of.EMPTY, ALIGNED, "--context", context).steps.loss


def test_the_noise_of_other_augmentations_is_measured_where_fetches_are_not_aligned(tmp_path: Path) -> None:
    reseeded = (*ALIGNED, ReseedAugmentation(seed=1))
    plain, other = (launch(tmp_path, plans_of.EMPTY, it, "--stream") for it in (ALIGNED, reseeded))
    assert plain.steps.loss != other.steps.loss
    aligned, still = (launch(tmp_path, plans_of.EMPTY, it) for it in (ALIGNED, reseeded))
    assert aligned.steps.loss == still.steps.loss, "neither augmentation nor the order of samples changes"
