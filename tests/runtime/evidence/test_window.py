"""The profiler's window: complete or absent, readable, and never in conflict with the script's own profiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotlap.plan import setting
from hotlap.records import Completed, Plan, Stopped
from hotlap.traces import analyse, read_trace

LOOP = """
for inputs, targets in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
"""


def test_the_last_steps_are_in_the_trace(launch) -> None:  # type: ignore[no-untyped-def]
    run, evidence = launch(LOOP, steps=14, profiled_steps=4)
    window = evidence.window
    assert window is not None
    assert (window.first_step, window.steps, window.with_stack) == (10, 4, True)
    assert {"torch", "numpy"} <= set(window.libraries) and "os" not in window.libraries
    assert Path(run.output_path).read_text() == ""
    assert window.wall_seconds == pytest.approx(sum(run.steps.wall_seconds[10:14]))
    assert [it.name for it in Path(window.trace_path).parent.glob("window*")] == ["window.json.gz"]
    breakdown = analyse(read_trace(window.trace_path))
    assert [it.number for it in breakdown.steps] == [10, 11, 12, 13]
    assert not breakdown.coverage.ended_early
    # A step's mark is set around what the clock counts as the step.
    for mark, seconds in zip(breakdown.steps, run.steps.wall_seconds[10:14], strict=True):
        assert mark.nanoseconds > 0.9e9 * seconds


def test_a_launch_whose_time_is_over_goes_on_for_the_window(launch) -> None:  # type: ignore[no-untyped-def]
    run, evidence = launch(LOOP, steps=60, profiled_steps=5, request={"seconds": 0.001, "minimum_steps": 2})
    assert isinstance(run.ending, Stopped)
    assert evidence.window is not None
    assert evidence.window.steps == 5 and evidence.window.first_step >= 3
    assert len(run.steps.wall_seconds) == evidence.window.first_step + 5


def test_a_launch_with_too_few_steps_has_no_window(launch) -> None:  # type: ignore[no-untyped-def]
    run, evidence = launch(LOOP, steps=6, profiled_steps=4)
    assert evidence.window is None
    assert len(run.steps.wall_seconds) == 6
    assert not list(Path(run.evidence_path).parent.glob("window*"))


@pytest.mark.slow
def test_no_window_unless_requested(launch) -> None:  # type: ignore[no-untyped-def]
    _, evidence = launch(LOOP, steps=16)
    assert evidence.window is None
    assert evidence.observed_steps == 15


OWN_PROFILER = """
from torch.profiler import ProfilerActivity, profile, schedule

def names(profiler):
    print("events", sum(it.key == "aten::mse_loss" for it in profiler.key_averages()), flush=True)

with profile(
    activities=[ProfilerActivity.CPU], schedule=schedule(wait=%d, warmup=1, active=2, repeat=1), on_trace_ready=names
) as own:
    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        own.step()
"""


@pytest.mark.parametrize(
    "begins",
    [
        pytest.param(2, id="before-the-window", marks=pytest.mark.slow),
        pytest.param(10, id="in-its-preparation", marks=pytest.mark.slow),
        pytest.param(11, id="within-the-window"),
    ],
)
def test_a_script_that_profiles_itself_keeps_its_profiler(launch, begins: int) -> None:  # type: ignore[no-untyped-def]
    run, evidence = launch(OWN_PROFILER % begins, steps=17, profiled_steps=6)
    assert isinstance(run.ending, Stopped), run.ending
    assert evidence.window is None
    assert any("uses torch.profiler itself" in it for it in run.notes)
    assert "events 1" in Path(run.output_path).read_text()


@pytest.mark.slow
def test_another_profiler_keeps_the_hook(launch) -> None:  # type: ignore[no-untyped-def]
    script = (
        """
import cProfile
own = cProfile.Profile()
own.enable()
"""
        + LOOP
    )
    _, evidence = launch(script, steps=14, profiled_steps=4)
    assert evidence.window is not None
    assert not evidence.window.with_stack


@pytest.mark.slow
def test_a_script_that_ends_within_its_window(launch) -> None:  # type: ignore[no-untyped-def]
    script = LOOP.replace("DataLoader(data,", "DataLoader(TensorDataset(*data[: 12 * 32]),")
    run, evidence = launch(script, steps=14, profiled_steps=4)
    assert isinstance(run.ending, Completed)
    assert evidence.window is None
    assert evidence.observed_steps == 9


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cached-samples", {}),
        pytest.param("fused-optimizer", {"implementation": "fused"}, marks=pytest.mark.slow),
        pytest.param("loader", {"num_workers": 1, "persistent_workers": True}, marks=pytest.mark.slow),
        pytest.param("compile", {"mode": "default", "dynamic": False}, marks=pytest.mark.slow),
    ],
)
def test_steps_with_a_plan_are_profiled_like_those_without(launch, name: str, values) -> None:  # type: ignore[no-untyped-def]
    """Levers and observers wrap the same functions of torch in one process."""
    run, evidence = launch(LOOP, steps=20, profiled_steps=4, plan=Plan(settings=(setting(name, **values),)))
    assert isinstance(run.ending, Stopped) and [it.lever for it in run.plan.settings] == [name]
    assert evidence.observed_steps == 20 - 1 - 4
    assert len(evidence.memory.host_bytes) >= 15
    assert evidence.window is not None
    assert len(analyse(read_trace(evidence.window.trace_path)).steps) == 4
