"""A model's calls as steps: timed, taken in turns, and ended in every way that a model may end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from inference.conftest import Launch, Target

from hotlap.procedures.call_advice import call_findings
from hotlap.records import Assignment, Crashed, Observe, Stopped, TimedOut, TurnRequest
from hotlap.runtime.training_mode import behaves_otherwise
from hotlap.trial.local import LocalExecutor


def test_every_call_is_a_step(launch: Launch) -> None:
    run = launch("mlp", instruments=(Observe(),))
    assert isinstance(run.ending, Stopped), run.ending
    assert len(run.steps.wall_seconds) == 12
    assert set(run.steps.samples) == {8}
    assert all(
        0 < call <= whole for call, whole in zip(run.steps.seconds_in("forward"), run.steps.wall_seconds, strict=True)
    )
    assert not any(run.steps.seconds_in("backward")) and not any(run.steps.seconds_in("optimizer"))
    assert run.facts.step_source == "call"
    (model,) = run.facts.models
    assert (model.kind, model.linears, model.dtype, model.input_shapes) == ("Sequential", 2, "float32", ((8, 16),))
    assert [(it.first_step, it.steps) for it in run.blocks] == [(1, 11)]


@pytest.mark.parametrize(
    ("model", "inputs", "shapes", "vary"),
    [
        ("nested", "rows_and_scales", ((2, 16), (2, 1)), False),
        ("mlp", "rows_of_all_lengths", ((2, 16), (5, 16), (8, 16)), True),
    ],
)
def test_inputs_of_one_call_may_differ_where_those_of_all_calls_are_alike(
    launch: Launch, model: str, inputs: str, shapes: tuple[tuple[int, ...], ...], vary: bool
) -> None:
    (found,) = launch(model, inputs, instruments=(Observe(),)).facts.models
    assert (found.input_shapes, found.shapes_vary) == (shapes, vary)


def test_calls_take_turns(target: Target, tmp_path: Path) -> None:
    arm = Assignment(workload=target("mlp"), step_source="call")
    request = TurnRequest(arms=(arm, arm), rounds=3, block_seconds=0.05, warm_up_limit_seconds=20)
    turns = LocalExecutor(tmp_path / "runs").take_turns(request)
    assert [type(run.ending) for run in turns.runs] == [Stopped, Stopped]
    assert [len(row) for row in turns.rounds] == [3, 3]


@pytest.mark.parametrize(
    ("model", "inputs"), [("nested", "rows"), ("nested", "named_rows"), ("mlp", "endless_rows"), ("poisoned", "rows")]
)
def test_outputs_and_inputs_of_any_shape(launch: Launch, model: str, inputs: str) -> None:
    run = launch(model, inputs)
    assert isinstance(run.ending, Stopped), run.ending
    assert len(run.steps.wall_seconds) == 12


@pytest.mark.parametrize(
    ("model", "inputs", "error"),
    [
        ("raising", "rows", "ValueError: the fourth call is too much"),
        ("no_model", "rows", "TypeError: models:no_model returned a int, which is no torch.nn.Module."),
        ("mlp", "no_rows", "ValueError: models:no_rows gave no inputs."),
        ("mlp", "nowhere", "AttributeError: module 'models' has no attribute 'nowhere'"),
    ],
)
def test_what_a_target_raises_is_its_crash(launch: Launch, model: str, inputs: str, error: str) -> None:
    run = launch(model, inputs)
    assert isinstance(run.ending, Crashed)
    assert run.ending.error == error


def test_a_call_that_hangs_is_given_up(launch: Launch) -> None:
    run = launch("hanging", block_limit_seconds=2.0)
    assert isinstance(run.ending, TimedOut)


def test_training_mode_is_said_and_not_changed(launch: Launch) -> None:
    run = launch("in_training_mode", instruments=(Observe(),))
    assert isinstance(run.ending, Stopped)
    (found,) = call_findings(run)
    assert found.title.startswith("Sequential is called in training mode") and found.evidence == ("1 dropout layer",)
    assert "Call `model.eval()` in the function that makes it" in found.remedy
    assert call_findings(launch("mlp", instruments=(Observe(),))) == ()


@pytest.mark.parametrize(
    ("module", "differs"),
    [
        (torch.nn.Dropout(0.1), True),
        (torch.nn.Dropout(0.0), False),
        (torch.nn.BatchNorm2d(3), True),
        (torch.nn.SyncBatchNorm(3), True),
        (torch.nn.LayerNorm(3), False),
        (torch.nn.LSTM(3, 3, num_layers=2, dropout=0.2), True),
        (torch.nn.LSTM(3, 3), False),
        (torch.nn.InstanceNorm1d(3), False),
        (torch.nn.InstanceNorm1d(3, track_running_stats=True), True),
        (torch.nn.MultiheadAttention(4, 2, dropout=0.5), True),
        (torch.nn.Linear(3, 3), False),
    ],
)
def test_what_training_mode_changes(module: torch.nn.Module, differs: bool) -> None:
    assert behaves_otherwise(module.train()) is differs
    assert not behaves_otherwise(module.eval())
