"""Text generation: calls of ``generate()`` as units of work, and their tokens as samples."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from hotlap.measure.quality import compared_outputs, judge_quality, outputs_of
from hotlap.records import (
    Assignment,
    CaptureOutputs,
    GenerationFacts,
    LaunchRequest,
    Observe,
    PhaseAccount,
    Plan,
    Run,
    Setting,
    Stopped,
    Workload,
)
from hotlap.render.account import rate_of, samples_remark
from hotlap.trial.local import LocalExecutor

BATCHED = Setting(lever="batched-prompts", values=(("prompts", 4),))
STATIC = Setting(lever="static-cache", values=(("compile", False),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("transformers")
    shutil.copy(Path(__file__).with_name("texts.py"), tmp_path / "texts.py")
    return tmp_path


def launched(folder: Path, *levers: Setting, steps: int, as_script: bool = False) -> Run:
    workload = Workload(
        kind="script" if as_script else "inference",
        target="texts.py" if as_script else "texts:language_model",
        arguments=() if as_script else ("--inputs", "texts:prompts"),
        directory=str(folder),
        python=sys.executable,
    )
    assignment = Assignment(
        workload=workload,
        step_source="call",
        plan=Plan(settings=levers),
        instruments=(Observe(), CaptureOutputs()),
    )
    run = LocalExecutor(folder / "runs").launch(LaunchRequest(assignment=assignment, steps=steps))
    assert isinstance(run.ending, Stopped), run.ending
    return run


def test_tokens_are_samples_and_levers_return_the_same_ones(folder: Path) -> None:
    plain, batched, static = (
        launched(folder, *levers, steps=steps) for levers, steps in (((), 8), ((BATCHED,), 3), ((STATIC,), 8))
    )
    assert set(plain.steps.samples) == set(static.steps.samples) == {5} and set(batched.steps.samples) == {20}
    assert plain.facts.samples_from == batched.facts.samples_from == "tokens"
    assert plain.facts.generation == GenerationFacts(prompts=4)
    assert len(plain.steps.first_token_seconds) == 8
    for first, wall in zip(plain.steps.first_token_seconds, plain.steps.wall_seconds, strict=True):
        assert 0 < first < wall
    reference = outputs_of(plain.outputs_path)
    for run in (batched, static):
        (found,) = compared_outputs(reference, outputs_of(run.outputs_path))
        assert not isinstance(found, str)
        assert found.of_tokens and found.decisions == 4 and found.first_difference is None


def test_calls_of_generate_in_a_script_are_found(folder: Path) -> None:
    run = launched(folder, steps=6, as_script=True)
    assert run.facts.calls_in_script and run.facts.samples_from == "tokens"
    assert set(run.steps.samples) == {5}
    assert run.facts.generation is not None
    assert run.facts.generation.unbatched == "A script forms its own batches."


def test_the_first_difference_is_named() -> None:
    reference = {"prompts": np.array([2, 3]), "0/output": np.array([[1, 2, 7, 8, 9]]), "1/output": np.arange(6)[None]}
    candidate = {**reference, "0/output": np.array([[1, 2, 7, 5, 9]])}
    compared = compared_outputs(reference, candidate)
    verdict = judge_quality(compared, proof="rounding", level=0.99, inputs=2, random_weights=0.0)
    assert verdict.verdict == "lost"
    assert "first difference: prompt 1, token 2: 5 instead of 8" in verdict.text
    shorter = {**reference, "1/output": np.arange(5)[None]}
    ended = judge_quality(
        compared_outputs(reference, shorter), proof="rounding", level=0.99, inputs=2, random_weights=0.0
    )
    assert "prompt 2, token 3: the end instead of 5" in ended.text


def test_rates_are_those_of_tokens() -> None:
    account = PhaseAccount(wall=0.5, phases=(("forward", 0.5),), samples_per_step=20, samples_from="tokens")
    assert rate_of(account) == ("tokens per second", 40.0)
    assert samples_remark(account).startswith("A call of generate() adds 20 tokens on average")
