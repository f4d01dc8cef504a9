"""Text generation: calls of ``generate()`` as units of work, and their tokens as samples."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from inference.test_infer import WORKLOAD, FakeModel

from hotlap.errors import StudyError
from hotlap.experiment.options import Options
from hotlap.measure.quality import compared_outputs, judge_quality, outputs_of
from hotlap.procedures.artefact import write_artefact
from hotlap.procedures.infer import infer
from hotlap.records import (
    Assignment,
    CaptureOutputs,
    Estimate,
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
from hotlap.render.kinds.api import presenter_of
from hotlap.render.markdown import markdown_report
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


@pytest.mark.slow
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
        compared = compared_outputs(reference, outputs_of(run.outputs_path))
        assert not isinstance(compared, str)
        (found,) = compared
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


class FakeGeneration(FakeModel):
    """Calls of ``generate()`` that add 20 tokens each, the first of them after a quarter of the call."""

    def _run(self, arm: Assignment, steps: int, seed: int) -> Run:
        run = super()._run(arm, steps, seed)
        facts = msgspec.structs.replace(
            run.facts, generation=GenerationFacts(prompts=1, unbatched="one"), samples_from="tokens"
        )
        walls = run.steps.wall_seconds
        times = msgspec.structs.replace(
            run.steps,
            samples=(20,) * len(walls),
            first_token_seconds=tuple(it / 4 for it in walls),
            token_seconds=tuple(it * 3 / 4 / 19 for it in walls),
        )
        return msgspec.structs.replace(run, facts=facts, steps=times)


def test_the_report_is_one_of_tokens(tmp_path: Path) -> None:
    study = infer(WORKLOAD, Options(), FakeGeneration(folder=tmp_path))
    assert study.status == "finished" and study.plan.settings
    rows = {it.label: " ".join(it.items) for it in presenter_of("inference").summary_rows(study)}
    assert "tokens per second" in rows["Tokens"] and "the first token after" in rows["Tokens"]
    shown = markdown_report(study)
    assert "mean token" in shown and "tokens per second" in shown
    assert "steps per second" not in shown and "mean call" not in shown
    commands = [it for it, _ in presenter_of("inference").next_commands(study, "")]
    assert "hotlap levers half-weights" in commands and not any("export artefact" in it for it in commands)
    with pytest.raises(StudyError, match=r"`generate\(\)` makes many"):
        write_artefact(study, WORKLOAD, Options(), FakeGeneration(folder=tmp_path), tmp_path / "artefact")


def test_an_interval_that_says_nothing_says_so(tmp_path: Path) -> None:
    study = infer(WORKLOAD, Options(), FakeGeneration(folder=tmp_path))
    assert study.verification is not None and study.verification.candidate_generation is not None
    wide = Estimate(value=800.0, low=100.0, high=5000.0, unit="1/s")
    for rate, said in (
        (wide, "800 tokens per second (100 to 5000; too wide to compare"),
        (None, "tokens per second unknown, since launches differ too much"),
    ):
        times = msgspec.structs.replace(study.verification.candidate_generation, tokens_per_second=rate)
        changed = msgspec.structs.replace(
            study, verification=msgspec.structs.replace(study.verification, candidate_generation=times)
        )
        rows = {it.label: " ".join(it.items) for it in presenter_of("inference").summary_rows(changed)}
        assert said in rows["Tokens"]
        assert rows["Tokens"].count("too wide") == (1 if rate else 0)
