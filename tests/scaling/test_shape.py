"""When backward finished which gradient, from a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hotlap.records import MemoryAmounts, PhaseAccount
from hotlap.scaling import step_of
from hotlap.traces import read_trace

NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
ACCUMULATE = "torch::autograd::AccumulateGrad"


def event(category: str, name: str, start: float, length: float, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length, "args": args}


def gradient(start: float, shape: list[int], kind: str = "float") -> list[dict[str, object]]:
    inputs = {"Input Dims": [shape], "Input type": [kind]}
    return [event("cpu_op", NODE, start, 10), event("cpu_op", ACCUMULATE, start + 1, 9, **inputs)]


def trace(folder: Path, *, passes: int = 1) -> Path:
    """Two steps of 1000 us; each backward pass takes 300 us and has gradients after a half and at its end."""
    events = []
    for step in range(2):
        begin = 1000.0 * step
        events.append(event("user_annotation", f"ProfilerStep#{step + 3}", begin, 990))
        for number in range(passes):
            at = begin + 200 + 300 * number
            events.append(event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", at, 20))
            events += gradient(at + 140, [10, 5])
            events += gradient(at + 290, [8], "c10::BFloat16")
        events.append(event("user_annotation", "Optimizer.step#AdamW.step", begin + 900, 50))
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


def test_gradients_have_their_moment_and_size(tmp_path: Path) -> None:
    step = step_of(read_trace(trace(tmp_path), with_inputs=True))
    assert step is not None
    assert [it.size_bytes for it in step.gradients] == [200, 16]
    assert [it.share for it in step.gradients] == pytest.approx([0.5, 1.0])
    assert step.forward_seconds == pytest.approx(200e-6) and step.backward_seconds == pytest.approx(300e-6)
    assert step.seconds == pytest.approx(990e-6) and step.optimizer_seconds == pytest.approx(50e-6)
    assert step.activation_bytes is None


def test_only_the_last_backward_of_a_step_has_gradients_to_exchange(tmp_path: Path) -> None:
    account = PhaseAccount(wall=1.0, phases=(("forward", 0.2), ("backward", 0.6), ("optimizer", 0.1), ("other", 0.1)))
    amounts = MemoryAmounts(parameters=216, gradients=216, optimizer_state=432, activations=1000, temporaries=24)
    timeline = read_trace(trace(tmp_path, passes=2), with_inputs=True)
    step = step_of(timeline, account, backwards=2.0, amounts=amounts, units=3)
    assert step is not None
    assert [it.share for it in step.gradients] == pytest.approx([0.5, 1.0])
    assert step.backward_seconds == pytest.approx(0.3) and step.forward_seconds == pytest.approx(0.5)
    assert step.other_seconds == pytest.approx(0.1) and step.activation_bytes == 1024


def test_a_trace_without_training_has_no_step(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = [event("user_annotation", "ProfilerStep#3", 0, 100), event("cpu_op", "aten::mm", 10, 20)]
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    assert step_of(read_trace(path, with_inputs=True)) is None


def test_gradients_without_shapes_predict_nothing(tmp_path: Path) -> None:
    path = trace(tmp_path)
    document = json.loads(path.read_text(encoding="utf-8"))
    for it in document["traceEvents"]:
        it["args"] = {}
    path.write_text(json.dumps(document), encoding="utf-8")
    assert step_of(read_trace(path, with_inputs=True)) is None
