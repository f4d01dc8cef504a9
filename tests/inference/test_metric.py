"""``--metric``: the user's own metric decides on quality, and one that fails is an outcome with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
from inference.conftest import Launch
from inference.test_infer import WORKLOAD, FakeModel, verdict

from hotlap.api.searches import inference_workload
from hotlap.errors import ScriptError, UsageError
from hotlap.experiment.options import Options
from hotlap.measure.quality import outputs_of
from hotlap.procedures.infer import infer
from hotlap.records import (
    CaptureOutputs,
    Crashed,
    Failed,
    Kept,
    LaunchRequest,
    QualityLost,
    Run,
    TaskQuality,
)
from hotlap.render.markdown import markdown_report

MEASURED = msgspec.structs.replace(WORKLOAD, arguments=(*WORKLOAD.arguments, "--metric", "serve:accuracy"))


def test_each_row_gets_a_score(launch: Launch) -> None:
    run = launch("mlp", steps=5, options=("--metric", "models:likeness"), instruments=(CaptureOutputs(),))
    found = outputs_of(run.outputs_path)
    assert [it for it in found if it.startswith("scores")] == ["scores/0"]
    assert found["scores/0"].tolist() == [1.0] * 40


def test_the_reference_is_also_scored_without_what_would_calibrate(launch: Launch) -> None:
    instruments = (CaptureOutputs(in_float32=True),)
    options = ("--metric", "models:single_score")
    run = launch("mlp", "many_rows", steps=10, options=options, instruments=instruments)
    found = outputs_of(run.outputs_path)
    assert {it: found[it].tolist() for it in found if it.startswith("scores")} == {"scores/0": [5.0], "scores/5": [2.5]}


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        pytest.param("raising_metric", "RuntimeError: no labels for these", marks=pytest.mark.slow),
        ("wordy_metric", "TypeError: models:wordy_metric returned a str, which is no number and holds none."),
    ],
)
def test_a_metric_that_fails_ends_the_launch_that_compares(launch: Launch, metric: str, said: str) -> None:
    options = ("--metric", f"models:{metric}")
    run = launch("mlp", steps=5, options=options, instruments=(CaptureOutputs(),))
    assert isinstance(run.ending, Crashed) and run.ending.error == said
    assert not isinstance(launch("mlp", steps=5, options=options).ending, Crashed), "timing runs evaluate nothing"


@dataclass
class Scored(FakeModel):
    """Each lever keeps a share of the metric; one of ``raising`` makes the metric raise."""

    keeps: tuple[tuple[str, float], ...] = ()
    raising: frozenset[str] = frozenset()

    def launch(self, request: LaunchRequest) -> Run:
        run = super().launch(request)
        levers = {it.lever for it in request.assignment.plan.settings} or {"reference"}
        if request.assignment.instrument(CaptureOutputs) is None:
            return run
        if levers & self.raising:
            return msgspec.structs.replace(run, ending=Crashed(exit_code=1, error="KeyError: 7"), blocks=())
        share = next((share for lever, share in self.keeps if lever in levers), 1.0)
        held = dict(outputs_of(run.outputs_path))
        np.savez(run.outputs_path, **held, **{"scores/0": np.full(50, 0.8 * share)})  # type: ignore[arg-type]
        return run


def test_the_metric_decides(tmp_path: Path) -> None:
    options = Options(only=("half-weights",), quality=0.97)
    study = infer(
        MEASURED, options, Scored(folder=tmp_path, keeps=(("half-weights", 0.98),), errors={"half-weights": 0.9})
    )
    assert isinstance(verdict(study, "half-weights"), Kept)
    assert study.verification is not None
    quality = study.verification.quality
    assert isinstance(quality, TaskQuality) and quality.score is not None
    assert quality.score.kept.value == pytest.approx(0.98)
    shown = " ".join(markdown_report(study).split())
    assert "keeps 0.98 of serve:accuracy on 50 samples" in shown and "share of serve:accuracy" in shown
    assert "--metric serve:accuracy" in shown


def test_a_metric_below_the_level_is_shown_and_not_recommended(tmp_path: Path) -> None:
    options = Options(only=("half-weights", "inference-mode"))
    study = infer(MEASURED, options, Scored(folder=tmp_path, keeps=(("half-weights", 0.7),)))
    assert isinstance(verdict(study, "half-weights"), QualityLost)
    assert [it.lever for it in study.plan.settings] == ["inference-mode"]
    assert "0.7 (0.7 to 0.7) of 0.8" in markdown_report(study)


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf")])
def test_nonsense_is_lost(tmp_path: Path, nonsense: float) -> None:
    options = Options(only=("half-weights",))
    study = infer(MEASURED, options, Scored(folder=tmp_path, keeps=(("half-weights", nonsense),)))
    lost = verdict(study, "half-weights")
    assert isinstance(lost, QualityLost) and "NaN or infinity" in lost.reason


def test_a_metric_that_raises_for_a_candidate_leaves_the_next(tmp_path: Path) -> None:
    options = Options(only=("half-weights", "inference-mode"))
    study = infer(MEASURED, options, Scored(folder=tmp_path, raising=frozenset({"half-weights"})))
    failed = verdict(study, "half-weights")
    assert isinstance(failed, Failed) and "KeyError: 7" in str(failed)
    assert isinstance(verdict(study, "inference-mode"), Kept)


def test_a_metric_that_raises_for_the_model_itself_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="KeyError: 7"):
        infer(MEASURED, Options(), Scored(folder=tmp_path, raising=frozenset({"reference"})))


def test_the_metric_is_part_of_the_command() -> None:
    assert inference_workload("a:b", "c:d", "e:f").arguments == ("--inputs", "c:d", "--metric", "e:f")
    with pytest.raises(UsageError, match="--metric is 'e'"):
        inference_workload("a:b", "c:d", "e")
