"""Single steps of real launches: healthy levers pass, and planted training bugs do not, in a script that is trained
from rounded weights, so that its losses are no longer those of the unmodified one."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

from hotlap import plan as plans_of
from hotlap.levers.support.situations import make_setting
from hotlap.measure.parity.single_steps import single_steps
from hotlap.records import (
    AlignRandomness,
    Assignment,
    Instrument,
    KeepSteps,
    LaunchRequest,
    Plan,
    RestoreSteps,
    RoundWeights,
    Run,
    Setting,
    Stopped,
    WithoutDropout,
    Workload,
)
from hotlap.trial.local import LocalExecutor

SCRIPT = Path(__file__).with_name("training.py")
STEPS = 60
KEPT = tuple(range(4, STEPS - 1, 5))
PLENTY = 10**9


class Launches:
    """Each launch is made once, however many tests use it."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.executor = LocalExecutor(self.runs)
        self._folder = folder
        self.of = cache(self._of)

    def _of(self, *instruments: Instrument, plan: Plan = plans_of.EMPTY, bug: str = "none") -> Run:
        workload = Workload(
            kind="script",
            target=str(SCRIPT),
            arguments=("--bug", bug),
            directory=str(self._folder),
            python=sys.executable,
        )
        aligned = (WithoutDropout(), AlignRandomness()) if bug != "eval-mode" else (AlignRandomness(),)
        assignment = Assignment(workload=workload, plan=plan, instruments=(*aligned, *instruments))
        run = self.executor.launch(LaunchRequest(assignment=assignment, steps=STEPS))
        assert isinstance(run.ending, Stopped), run.ending
        return run

    def passed(self, setting: Setting | None = None, bug: str = "none", *, changes_precision: bool) -> bool | None:
        kept = self.of(KeepSteps(steps=KEPT, most_bytes=PLENTY))
        own = self.of(RoundWeights(number_format="bfloat16"), RestoreSteps())
        plan = Plan(settings=(setting,) if setting is not None else ())
        candidate = self.of(RestoreSteps(), plan=plan, bug=bug)
        return single_steps(kept, own, candidate, changes_precision=changes_precision).passed


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    return Launches(tmp_path_factory.mktemp("single"))


def test_steps_from_the_same_state_are_the_same_to_the_last_bit(launches: Launches) -> None:
    kept = launches.of(KeepSteps(steps=KEPT, most_bytes=PLENTY))
    own = launches.of(RoundWeights(number_format="bfloat16"), RestoreSteps())
    assert kept.kept_steps == KEPT == tuple(it.step for it in own.restored_steps) and not own.notes
    assert all(it.error == 0 and it.length_ratio == 1 for it in own.restored_steps)
    assert all(own.steps.loss[it] == kept.steps.loss[it] for it in KEPT)
    assert own.steps.loss != kept.steps.loss, "in between it trained from other weights"


@pytest.mark.parametrize(
    ("setting", "changes_precision"),
    [
        (make_setting("mixed-precision", dtype="bfloat16"), True),
        (make_setting("channels-last"), False),
        pytest.param(make_setting("fused-optimizer", implementation="fused"), False, marks=pytest.mark.slow),
        pytest.param(make_setting("compile", mode="default", dynamic=False), False, marks=pytest.mark.slow),
    ],
    ids=lambda it: it.lever if isinstance(it, Setting) else "",
)
def test_a_healthy_lever_passes(setting: Setting, changes_precision: bool, launches: Launches) -> None:
    assert launches.passed(setting, changes_precision=changes_precision)


@pytest.mark.parametrize(
    "bug",
    [
        *("no-zero-grad", "learning-rate", "pure-bf16"),
        *(pytest.param(it, marks=pytest.mark.slow) for it in ("over-clipping", "eval-mode", "same-batch")),
    ],
)
def test_a_planted_bug_does_not_pass(bug: str, launches: Launches) -> None:
    assert not launches.passed(bug=bug, changes_precision=False)
    assert not launches.passed(bug=bug, changes_precision=True)


def test_nothing_is_kept_of_a_model_that_is_too_large(tmp_path: Path) -> None:
    """Nor left behind of any: the folder goes with the executor."""
    launches = Launches(tmp_path)
    kept = launches.of(KeepSteps(steps=KEPT, most_bytes=1000))
    assert not kept.kept_steps and any("too large" in it for it in kept.notes)
    folders = list(launches.runs.glob("hotlap-steps-*"))
    assert len(folders) == 1 and not list(folders[0].glob("*.npz"))
    own = launches.of(RestoreSteps())
    assert not own.restored_steps
    launches.executor._stack.close()
    assert not folders[0].exists()
