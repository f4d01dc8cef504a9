"""Planted traps, in real launches: a silent fall-back, int8 that is useless, NaN. None is recommended.

An engine that crashes is in ``test_faults.py``; ``test_infer.py`` has the same traps on a model of arithmetic.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from inference.conftest import Launch, Target
from inference.test_infer import verdict

from hotlap.experiment.options import Options
from hotlap.experiment.prove_outputs import _eager_part, _not_compiled
from hotlap.measure.quality import compared_outputs, judge_quality, outputs_of
from hotlap.procedures.infer import infer
from hotlap.records import CaptureOutputs, Kept, Plan, QualityLost, Run, Setting, Stopped, TaskQuality
from hotlap.trial.local import LocalExecutor


def setting(lever: str, **values: Any) -> Setting:
    return Setting(lever=lever, values=tuple(sorted(values.items())))


def judged(launch: Launch, model: str, inputs: str, changed: Setting) -> tuple[TaskQuality, Run]:
    """The outputs with a lever, compared with those without."""
    runs = [
        launch(model, inputs, steps=10, plan=Plan(settings=it), instruments=(CaptureOutputs(),))
        for it in ((), (changed,))
    ]
    assert all(isinstance(it.ending, Stopped) for it in runs), [it.ending for it in runs]
    outputs = compared_outputs(*(outputs_of(it.outputs_path) for it in runs))
    return judge_quality(outputs, level=0.99, inputs=10, random_weights=0.0, proof="rounding"), runs[1]


def test_nan_in_another_format_is_lost(launch: Launch) -> None:
    quality, _ = judged(launch, "infinite_in_bfloat16", "ones", setting("half-weights", dtype="bfloat16"))
    assert quality.verdict == "lost" and "holds NaN or infinity" in quality.text


@pytest.mark.slow
def test_a_model_that_cannot_be_compiled_is_known_to_run_without_it(launch: Launch) -> None:
    asked = setting("compile", mode="default", dynamic=False)
    quality, run = judged(launch, "never_compiled", "rows", asked)
    assert quality.verdict == "exact" and run.compile.graphs == 0
    assert "no graph was compiled" in _not_compiled(Plan(settings=(asked,)), run)


@pytest.mark.slow
def test_calls_that_fall_back_to_eager_are_said(launch: Launch) -> None:
    """torch compiles a function eight times; after that its calls run uncompiled, which only a log says."""
    asked = Plan(settings=(setting("compile", mode="default", dynamic=False),))
    run = launch("compiled_too_often", "rows", steps=16, plan=asked)
    assert isinstance(run.ending, Stopped) and run.compile.graphs, run.ending
    assert "ecompile" in _eager_part(asked, run), run.compile
    assert not _eager_part(asked, launch("loaded", "rows_of_all_lengths", steps=6, plan=asked))


INT8 = [
    ("int8-weights", {}, "torchao"),
    ("torchao-int8", {}, "torchao"),
    ("openvino", {"precision": "int8-dynamic"}, "nncf"),
    ("onnx-runtime", {"precision": "int8", "per_channel": True}, "onnxruntime"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("lever", "values", "package"), INT8, ids=[it[0] for it in INT8])
def test_int8_that_is_useless_is_lost(launch: Launch, lever: str, values: dict[str, Any], package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    quality, run = judged(launch, "useless_in_int8", "rows_without_the_first", setting(lever, **values))
    assert quality.verdict == "lost" and "below the level" in quality.text
    assert run.engine is not None and run.engine.quantized, "it did compute in int8"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason='not installed: pip install "hotlap[quantize]"')
def test_a_search_shows_useless_int8_and_does_not_recommend_it(target: Target, tmp_path: Path) -> None:
    """For memory, which int8 weights do save, so that it is proved."""
    from hotlap.objective import for_inference

    objective = for_inference("memory", slowdown=100.0, p99_seconds=None)
    options = Options(only=("int8-weights",), objective=objective, rounds=4)
    study = infer(target("useless_in_int8", "rows_without_the_first"), options, LocalExecutor(tmp_path / "runs"))
    found = verdict(study, "int8-weights")
    assert not isinstance(found, Kept) and not study.plan.settings
    if isinstance(found, QualityLost):
        assert "below the level" in found.reason
