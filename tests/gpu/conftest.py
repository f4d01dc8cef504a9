"""Real launches of this folder's trainer on the accelerator."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.measure.parity.single_steps import single_steps
from hotlap.measure.parity.verdict import ParityEvidence, judge
from hotlap.plan import EMPTY
from hotlap.records import (
    AlignRandomness,
    Assignment,
    CaptureGradients,
    ComputeInFloat64,
    GateResult,
    Instrument,
    KeepSteps,
    LaunchRequest,
    NudgeWeights,
    Parity,
    Plan,
    RestoreSteps,
    Run,
    Setting,
    Stopped,
    WithoutDropout,
    Workload,
)
from hotlap.trial.local import LocalExecutor

TRAINER = Path(__file__).with_name("trainer.py")
STEPS_COMPARED = 120
STEPS_KEPT = tuple(range(9, STEPS_COMPARED - 1, 10))


class Lab:
    """Launches of the trainer, and the comparisons of numbers that levers need."""

    def __init__(self, directory: Path) -> None:
        self.executor = LocalExecutor(directory)
        self._directory = directory
        self._runs: dict[tuple[str, ...], Run] = {}
        self._kept: dict[str, tuple[LocalExecutor, Run, Run]] = {}

    def assignment(self, *words: str, plan: Plan = EMPTY) -> Assignment:
        workload = Workload(
            kind="script",
            target=str(TRAINER),
            arguments=words,
            directory=str(TRAINER.parent),
            python=sys.executable,
        )
        return Assignment(workload=workload, plan=plan)

    def launch(self, *words: str, settings: tuple[Setting, ...] = (), steps: int = 40) -> Run:
        """The trainer with these flags and levers; a failure of the trainer fails the test."""
        run = self.executor.launch(
            LaunchRequest(assignment=self.assignment(*words, plan=Plan(settings=settings)), steps=steps)
        )
        assert isinstance(run.ending, Stopped), run.ending
        assert len(run.steps.wall_seconds) == steps
        return run

    def prove(self, setting: Setting, model: str) -> Parity:
        """The lever against the unmodified trainer, with the evidence that the search would gather."""
        changes_precision = any(name in ("dtype", "precision") for name, _ in setting.values)
        return judge(
            ParityEvidence(
                baseline=self._compared("baseline", model),
                baseline_again=self._compared("again", model),
                candidate=self._compared("candidate", model, setting),
                proof=find(setting.lever).proof,
                nudged=(self._compared("nudged", model),),
                reference=None if changes_precision else self._compared("reference", model),
                changes_precision=changes_precision,
            )
        )

    def single_steps(self, setting: Setting, model: str) -> GateResult:
        """The lever's single steps against the unmodified trainer's (G5)."""
        changes_precision = any(name in ("dtype", "precision") for name, _ in setting.values)
        executor, kept, own = self.kept(model)
        candidate = self._single(executor, model, RestoreSteps(), plan=Plan(settings=(setting,)))
        return single_steps(kept, own, candidate, changes_precision=changes_precision)

    def kept(self, model: str) -> tuple[LocalExecutor, Run, Run]:
        """The executor that keeps what this model's steps start from, the run that they are of, and one from nudged
        weights that starts there."""
        if model not in self._kept:
            executor = LocalExecutor(self._directory / model)
            kept = self._single(executor, model, KeepSteps(steps=STEPS_KEPT, most_bytes=10**9))
            self._kept[model] = executor, kept, self._single(executor, model, NudgeWeights(), RestoreSteps())
        return self._kept[model]

    def _single(self, executor: LocalExecutor, model: str, *instruments: Instrument, plan: Plan = EMPTY) -> Run:
        assignment = msgspec.structs.replace(
            self.assignment("--model", model, plan=plan),
            instruments=(WithoutDropout(), AlignRandomness(), *instruments),
        )
        run = executor.launch(LaunchRequest(assignment=assignment, steps=STEPS_COMPARED))
        assert isinstance(run.ending, Stopped), run.ending
        return run

    def _compared(self, kind: str, model: str, setting: Setting | None = None) -> Run:
        key = (kind, model, str(setting))
        if key not in self._runs:
            plan = EMPTY if setting is None else Plan(settings=(setting,))
            assignment = msgspec.structs.replace(
                self.assignment("--model", model, plan=plan),
                instruments=(
                    WithoutDropout(),
                    AlignRandomness(),
                    CaptureGradients(),
                    *((NudgeWeights(),) if kind == "nudged" else ()),
                    *((ComputeInFloat64(),) if kind == "reference" else ()),
                ),
            )
            steps = 1 if kind == "reference" else STEPS_COMPARED
            run = self.executor.launch(LaunchRequest(assignment=assignment, steps=steps))
            assert isinstance(run.ending, Stopped), run.ending
            self._runs[key] = run
        return self._runs[key]


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def told() -> Any:
    """What the trainer printed about itself, all its JSON objects in one."""

    def read(run: Run) -> dict[str, Any]:
        lines = Path(run.output_path).read_text(encoding="utf-8").splitlines()
        merged: dict[str, Any] = {}
        for line in lines:
            if line.startswith("{"):
                merged |= json.loads(line)
        return merged

    return read


@pytest.fixture(scope="session")
def lever() -> Any:
    """Make settings by name."""
    return make_setting
