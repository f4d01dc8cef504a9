"""Parity on real launches: planted training bugs are caught, and healthy levers pass, through the very path that a
search takes (aligned launches of the script by the local executor, then the gates)."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

from hotlap import plan as plans_of
from hotlap.experiment.prove import NUDGES
from hotlap.levers.support.situations import make_setting
from hotlap.measure.parity.verdict import ParityEvidence, judge
from hotlap.records import (
    AlignRandomness,
    Assignment,
    CaptureGradients,
    ComputeInFloat64,
    LaunchRequest,
    Plan,
    Proof,
    Run,
    Setting,
    Stopped,
    WithoutDropout,
    Workload,
)
from hotlap.trial.local import LocalExecutor

SCRIPT = Path(__file__).with_name("training.py")
STEPS = 200
WITHOUT_TILES = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
"""The largest difference of bfloat16 here depends on the processor: 0.23 % with AMX, 0.14 % on the same one without,
where 0.2 % is allowed. The verdict on the former is right, and not the one that is tested."""
BUGS = (
    *("no-zero-grad", "learning-rate", "same-batch", "pure-bf16"),
    *(pytest.param(it, marks=pytest.mark.slow) for it in ("over-clipping", "no-decay", "eval-mode")),
)


class Launches:
    """Each launch is made once, however many tests use it."""

    def __init__(self, folder: Path) -> None:
        self._executor = LocalExecutor(folder / "runs", environment=WITHOUT_TILES)
        self._folder = folder
        self.of = cache(self._of)

    def _of(self, plan: Plan = plans_of.EMPTY, bug: str = "none", kind: str = "", number: int = 0) -> Run:
        workload = Workload(
            kind="script",
            target=str(SCRIPT),
            arguments=("--bug", bug),
            directory=str(self._folder),
            python=sys.executable,
        )
        assignment = Assignment(
            workload=workload,
            plan=plan,
            instruments=(
                *((WithoutDropout(),) if bug != "eval-mode" else ()),
                AlignRandomness(),
                CaptureGradients(),
                *((NUDGES[kind],) if kind in NUDGES else ()),
                *((ComputeInFloat64(),) if kind == "reference" else ()),
            ),
        )
        steps = 1 if kind == "reference" else STEPS
        run = self._executor.launch(LaunchRequest(assignment=assignment, steps=steps))
        assert isinstance(run.ending, Stopped), run.ending
        return run

    def evidence(self, candidate: Run, proof: Proof, *, changes_precision: bool = False) -> ParityEvidence:
        return ParityEvidence(
            baseline=self.of(),
            baseline_again=self.of(number=1),
            candidate=candidate,
            proof=proof,
            nudged=tuple(self.of(kind=it) for it in NUDGES),
            reference=None if changes_precision else self.of(kind="reference"),
            changes_precision=changes_precision,
        )


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    return Launches(tmp_path_factory.mktemp("parity"))


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str, launches: Launches) -> None:
    found = judge(launches.evidence(launches.of(bug=bug), "rounding", changes_precision=bug == "pure-bf16"))
    assert found.verdict == "lost", found.text


@pytest.mark.parametrize(
    "setting",
    [
        make_setting("mixed-precision", dtype="bfloat16"),
        make_setting("fused-optimizer", implementation="fused"),
        make_setting("channels-last"),
        *(
            pytest.param(it, marks=pytest.mark.slow)
            for it in (
                make_setting("fused-optimizer", implementation="foreach"),
                make_setting("cpu-threads", threads=2),
                make_setting("compile", mode="default", dynamic=False),
            )
        ),
    ],
    ids=plans_of.describe,
)
def test_a_healthy_lever_passes(setting: Setting, launches: Launches) -> None:
    changes_precision = setting.lever == "mixed-precision"
    candidate = launches.of(plan=Plan(settings=(setting,)))
    found = judge(launches.evidence(candidate, "rounding", changes_precision=changes_precision))
    assert found.verdict == "within", found.text


def test_workers_change_nothing_to_the_last_bit(launches: Launches) -> None:
    workers = make_setting("loader", num_workers=2, pin_memory=False, persistent_workers=True, prefetch_factor=2)
    found = judge(launches.evidence(launches.of(plan=Plan(settings=(workers,))), "exact"))
    assert found.verdict == "exact", found.text


def test_the_script_repeats_itself(launches: Launches) -> None:
    assert launches.of().steps.loss == launches.of(number=1).steps.loss
    assert len(launches.of().steps.loss) == STEPS
