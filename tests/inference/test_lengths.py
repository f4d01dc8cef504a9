"""``--lengths``: how much of the work is padding, and batches of similar length with outputs in the original order."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inference.test_infer import WORKLOAD, FakeModel

from hotlap.cli.main import main
from hotlap.errors import StudyError
from hotlap.experiment.options import Options
from hotlap.levers.support.lengths import GIVEN, TRIED, Batch, batches_of, padding_of
from hotlap.measure.quality import compared_outputs, outputs_of
from hotlap.procedures.artefact import write_artefact
from hotlap.procedures.infer import infer
from hotlap.records import (
    Assignment,
    Batching,
    CaptureOutputs,
    Crashed,
    LaunchRequest,
    LengthFacts,
    Plan,
    Run,
    Setting,
    Skipped,
    Stopped,
    Workload,
)
from hotlap.render.markdown import markdown_report
from hotlap.trial.local import LocalExecutor

LENGTHS = (3, 30, 5, 7, 28, 4, 6, 2, 12, 9)
OWN = [Batch((0, 1, 2, 3), 32), Batch((4, 5, 6, 7), 32), Batch((8, 9), 32)]


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30),
    st.integers(1, 7),
    st.sampled_from(["given", "sorted", "bucketed"]),
    st.integers(1, 16),
)
def test_each_sequence_is_in_one_batch_that_is_long_enough(
    lengths: list[int], size: int, order: str, multiple: int
) -> None:
    numbers = range(len(lengths))
    own = [Batch(tuple(numbers[start : start + size]), 40) for start in range(0, len(lengths), size)]
    found = batches_of(lengths, own, Batching(order=order, multiple=multiple))  # type: ignore[arg-type]
    assert Counter(it for batch in found for it in batch.sequences) == Counter(numbers)
    for batch in found:
        assert len(batch.sequences) <= size
        assert max(1, *(lengths[it] for it in batch.sequences)) <= batch.length <= 40
    assert sum(len(it.sequences) * it.length for it in found) <= 40 * len(lengths)


def test_what_is_computed_is_counted() -> None:
    found = {(it.order, it.multiple): padding_of(LENGTHS, OWN, it) for it in (GIVEN, *TRIED)}
    assert (found["given", 0].positions, found["given", 0].batches, found["given", 0].shapes) == (320, 3, 2)
    assert found["given", 1].positions == 4 * 30 + 4 * 28 + 2 * 12
    assert found["sorted", 1].positions == 4 * 30 + 4 * 7 + 2 * 3
    assert found["sorted", 8].positions == 4 * 32 + 4 * 8 + 2 * 8


def launched(folder: Path, inputs: str = "texts", model: str = "encoder", **values: object) -> Run:
    shutil.copy(Path(__file__).with_name("sequences.py"), folder / "sequences.py")
    workload = Workload(
        kind="inference",
        target=f"sequences:{model}",
        arguments=("--inputs", f"sequences:{inputs}", "--lengths"),
        directory=str(folder),
        python=sys.executable,
    )
    setting = Setting(lever="length-bucketing", values=tuple(sorted(values.items())))  # type: ignore[arg-type]
    plan = Plan(settings=(setting,) if values else ())
    assignment = Assignment(workload=workload, step_source="call", plan=plan, instruments=(CaptureOutputs(),))
    return LocalExecutor(folder / "runs").launch(LaunchRequest(assignment=assignment, steps=3))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return launched(tmp_path_factory.mktemp("own"))


def test_a_pass_is_a_unit_of_work(own: Run) -> None:
    assert isinstance(own.ending, Stopped), own.ending
    assert len(own.steps.wall_seconds) == 3 and set(own.steps.samples) == {10}
    lengths = own.facts.lengths
    assert lengths is not None and lengths.whole_passes
    assert (lengths.tokens, lengths.sequences, lengths.shortest, lengths.longest) == (sum(LENGTHS), 10, 2, 30)
    assert lengths.paddings[0].positions == 320


@pytest.mark.parametrize(
    ("order", "multiple"),
    [
        ("sorted", 8),
        pytest.param("sorted", 1, marks=pytest.mark.slow),
        pytest.param("bucketed", 16, marks=pytest.mark.slow),
        pytest.param("given", 1, marks=pytest.mark.slow),
    ],
)
def test_outputs_are_the_same_to_rounding(own: Run, tmp_path: Path, order: str, multiple: int) -> None:
    run = launched(tmp_path, order=order, multiple=multiple)
    assert isinstance(run.ending, Stopped), run.ending
    assert sum(run.steps.samples) == 30
    found = compared_outputs(outputs_of(own.outputs_path), outputs_of(run.outputs_path))
    assert not isinstance(found, str), found
    assert {it.name for it in found} == {"output.hidden", "output.pooled"}
    assert all(it.worst_relative_error < 1e-5 for it in found)


def test_padding_on_the_left_is_cut_there(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    unmodified = launched(tmp_path / "own", "texts_padded_at_left")
    run = launched(tmp_path, "texts_padded_at_left", order="sorted", multiple=1)
    found = compared_outputs(outputs_of(unmodified.outputs_path), outputs_of(run.outputs_path))
    assert not isinstance(found, str) and all(it.worst_relative_error < 1e-5 for it in found)
    hidden = outputs_of(run.outputs_path)["0/output.hidden"]
    assert not np.any(hidden[0, :29]) and np.all(np.any(hidden[0, 29:], axis=1))


@pytest.mark.parametrize(
    ("inputs", "model", "said"),
    [
        ("texts_with_gaps", "encoder", "The attention mask has gaps"),
        ("texts", "summing", "The output.hidden has no row for each sequence"),
    ],
)
def test_what_cannot_be_cut_apart_is_said(tmp_path: Path, inputs: str, model: str, said: str) -> None:
    run = launched(tmp_path, inputs, model)
    assert isinstance(run.ending, Crashed) and said in run.ending.error


# -- the search ------------------------------------------------------------------------------------------

PASSES = msgspec.structs.replace(WORKLOAD, arguments=(*WORKLOAD.arguments, "--lengths"))
FACTS = LengthFacts(
    mask="input[1]['attention_mask']",
    sequences=10,
    tokens=sum(LENGTHS),
    shortest=2,
    median=6.5,
    longest=30,
    paddings=tuple(padding_of(LENGTHS, OWN, it) for it in (GIVEN, *TRIED)),
    whole_passes=True,
)


class FakePasses(FakeModel):
    lengths: LengthFacts | None = FACTS

    def _run(self, arm: Assignment, steps: int, seed: int) -> Run:
        run = super()._run(arm, steps, seed)
        return msgspec.structs.replace(run, facts=msgspec.structs.replace(run.facts, lengths=self.lengths))


def test_each_way_is_measured_and_the_report_shows_it(tmp_path: Path) -> None:
    executor = FakePasses(folder=tmp_path, factors={"length-bucketing": 2.6}, errors={"length-bucketing": 1e-7})
    study = infer(PASSES, Options(only=("length-bucketing",)), executor)
    assert [it.lever for it in study.plan.settings] == ["length-bucketing"]
    assert len(study.candidates) >= 3
    shown = " ".join(markdown_report(study).split())
    assert "67 % of what the model computes is padding: 10 sequences of 2 to 30 tokens (median 6.5)." in shown
    assert "sorted, multiples of 8" in shown and "as given, cut to the longest" in shown
    assert "hotlap levers length-bucketing" in shown and "hotlap export artefact" not in shown
    with pytest.raises(StudyError, match="done by the code that calls the model"):
        write_artefact(study, PASSES, Options(), executor, tmp_path / "model")


def test_without_the_option_it_is_skipped_and_named(tmp_path: Path) -> None:
    executor = FakePasses(folder=tmp_path)
    executor.lengths = msgspec.structs.replace(FACTS, whole_passes=False)
    study = infer(WORKLOAD, Options(only=("length-bucketing", "inference-mode")), executor)
    verdict = next(it.verdict for it in study.outcomes if it.lever == "length-bucketing")
    assert isinstance(verdict, Skipped) and "--lengths" in verdict.reason
    assert "hotlap infer --lengths" in markdown_report(study)


def test_a_pass_has_no_latency(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "--lengths", "--p99", "20ms", "serve:model", "--inputs", "serve:inputs"]) == 2
    assert "no single call has a latency" in " ".join(capsys.readouterr().err.split())
