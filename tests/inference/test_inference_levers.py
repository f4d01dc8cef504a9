"""What holds for every lever of inference on a model that is really called: it runs, and keeps its quality."""

from __future__ import annotations

import msgspec
import pytest
import torch
from compilers import CANNOT_LINK
from inference.conftest import Launch

from hotlap.levers.api import Lever, find, inference_levers
from hotlap.measure.quality import compared_outputs, judge_quality, outputs_of
from hotlap.records import (
    ENGINE_PACKAGES,
    Batching,
    CaptureOutputs,
    LengthFacts,
    Machine,
    ModelFacts,
    Padding,
    Plan,
    Run,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    Stopped,
)

SITUATION = Situation(
    facts=ScriptFacts(
        step_source="call",
        inputs=3,
        threads=2,
        models=(
            ModelFacts(kind="Net", parameters=10, convolutions=1, linears=1, recurrent=1, input_shapes=((4, 3, 8, 8),)),
        ),
        packages=ENGINE_PACKAGES,
        lengths=LengthFacts(
            mask="mask",
            sequences=2,
            tokens=4,
            shortest=1,
            median=2.0,
            longest=3,
            paddings=(
                Padding(batching=Batching(), positions=8, batches=1, shapes=1),
                Padding(batching=Batching(order="sorted", multiple=1), positions=6, batches=1, shapes=1),
            ),
            whole_passes=True,
        ),
    ),
    machine=Machine(cores=2, physical_cores=2, native_dtypes=("float32", "bfloat16")),
)
OF_OTHER_MODELS = {"attention-kernel", "sdpa-attention", "batched-prompts", "static-cache"}
"""Levers for attention and for text generation, which the model here has not; ``test_generation.py`` runs these."""
OF_SINGLE_CALLS = {"batched-calls"}
"""Levers that whole passes over sequences exclude; ``test_batched_calls.py`` runs these."""
OF_GPUS = {"onnx-runtime-gpu", "tensorrt"}
"""Engines for NVIDIA's GPUs; ``test_gpu_engines.py`` tests what can be tested without one."""
ELSEWHERE = OF_OTHER_MODELS | OF_SINGLE_CALLS | OF_GPUS
WITH_PACKAGES = {"onnx-runtime": "onnx", "openvino": "openvino", "torchao-int8": "quantize", "int8-weights": "quantize"}
"""Levers that need what the gate does not install, and the extra that does; ``test_engines.py`` runs them."""


def marks_of(lever: Lever, number: int) -> list[pytest.MarkDecorator]:
    """Compiling takes longest by far: the gate does it once, for the lever's first setting."""
    marks = [CANNOT_LINK] if lever.name == "compile" else []
    if lever.name == "aot-inductor" or (lever.name == "compile" and number > 0):
        marks.append(pytest.mark.slow)
    return marks


SETTINGS = [
    pytest.param(lever, setting, marks=marks_of(lever, number))
    for lever in inference_levers().values()
    for number, setting in enumerate(lever.candidates(SITUATION))
    if lever.name not in {*WITH_PACKAGES, *ELSEWHERE}
]


def run(launch: Launch, *settings: Setting) -> Run:
    return launch("images", "image_inputs", steps=4, plan=Plan(settings=settings), instruments=(CaptureOutputs(),))


def test_which_levers_there_are() -> None:
    assert {"inference-mode", "half-weights", "compile", "channels-last", "cpu-threads", "mixed-precision"} <= set(
        inference_levers()
    )
    assert "loader" not in inference_levers() and "fused-optimizer" not in inference_levers()


@pytest.mark.parametrize("lever", inference_levers().values(), ids=lambda it: it.name)
def test_each_applies_to_a_plain_model_on_a_cpu_or_says_why_not(lever: Lever) -> None:
    skipped = lever.obstacle(SITUATION)
    assert (skipped is not None and bool(skipped.reason)) == (lever.name in ELSEWHERE)
    assert skipped is not None or lever.candidates(SITUATION)
    assert lever.obstacle(Situation()) is not None


@pytest.mark.parametrize(("name", "extra"), WITH_PACKAGES.items())
def test_an_engine_that_is_missing_is_skipped_with_what_installs_it(name: str, extra: str) -> None:
    facts = msgspec.structs.replace(SITUATION.facts, packages=())
    skipped = find(name).obstacle(msgspec.structs.replace(SITUATION, facts=facts))
    assert isinstance(skipped, Skipped) and f'pip install "hotlap[{extra}]"' in skipped.reason


@pytest.mark.parametrize(("lever", "setting"), SETTINGS, ids=lambda it: getattr(it, "name", ""))
def test_each_runs_and_keeps_the_outputs_that_it_must(
    launch: Launch, launch_once: Launch, lever: Lever, setting: Setting
) -> None:
    if lever.name == "aot-inductor" and " " in torch.__file__:
        pytest.skip("torch does not quote the path of its libraries where it links a package")
    plain, changed = run(launch_once), run(launch, setting)
    assert isinstance(changed.ending, Stopped), changed.ending
    outputs = compared_outputs(outputs_of(plain.outputs_path), outputs_of(changed.outputs_path))
    judged = judge_quality(outputs, level=0.9, inputs=3, random_weights=0.0, proof=lever.proof)
    assert judged.verdict == "exact" if lever.proof == "exact" else judged.verdict in ("exact", "within"), judged.text
    if "dtype" in dict(setting.values):
        assert judged.verdict == "within", "it did not compute in another format"
        assert "bfloat16" in (changed.facts.autocast_dtype, changed.facts.models[0].dtype)
    if lever.name == "compile":
        assert changed.compile.graphs > 0 and not changed.compile.fallbacks
    if lever.name == "cpu-threads":
        assert changed.facts.threads == dict(setting.values)["threads"]
    assert (changed.engine is not None) == lever.replaces_torch
    if changed.engine is not None:
        assert changed.engine.operators > 0
    if lever.name == "channels-last":
        assert changed.facts.models[0].channels_last


def test_levers_compose(launch: Launch) -> None:
    settings = (Setting(lever="inference-mode"), Setting(lever="half-weights", values=(("dtype", "bfloat16"),)))
    found = run(launch, *settings)
    assert isinstance(found.ending, Stopped), found.ending
    assert found.facts.models[0].dtype == "bfloat16"
