"""The device of a model, its precision there, and models that several processes hold together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy
import pytest
import torch
from torch import distributed, nn

from hotlap.records import Assignment, CaptureGradients, NudgeWeights, Workload
from hotlap.runtime.clock import StepClock
from hotlap.runtime.devices import device_kind, matmul_precision
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.instruments.nudge_weights import nudge_weights
from hotlap.runtime.interception import Interception
from hotlap.runtime.invariants import InvariantsRecorder
from hotlap.runtime.observer import Observer

WORKLOAD = Workload(kind="script", target=__file__, directory=str(Path(__file__).parent), python="python")


class Parameters:
    """The part of a model that is used: the device and the size of each parameter."""

    def __init__(self, *held: tuple[str, int]) -> None:
        self.held = held

    def parameters(self) -> Iterator[Any]:
        for kind, count in self.held:
            yield SimpleNamespace(device=torch.device(kind), numel=lambda count=count: count, element_size=lambda: 4)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (Parameters(), "cpu"),
        (Parameters(("cpu", 10)), "cpu"),
        (Parameters(("cuda", 10)), "cuda"),
        (Parameters(("cpu", 1_000_000), ("cuda", 10)), "cuda"),
        (Parameters(("cuda", 10), ("xpu", 20)), "xpu"),
        (Parameters(("meta", 10)), "cpu"),
        (nn.LazyLinear(4), "cpu"),
    ],
)
def test_a_model_computes_where_an_accelerator_holds_any_of_it(model: Any, kind: str) -> None:
    assert device_kind(model) == kind


def test_a_model_that_moves_is_examined_again() -> None:
    hooks, model = Hooks(torch=torch), Parameters(("cpu", 10))
    assert hooks.device_kind(model) == "cpu"
    model.held = (("cuda", 10),)
    assert hooks.device_kind(model) == "cuda"


@pytest.fixture
def newer_switches() -> Iterator[Any]:
    yield torch.backends
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.mkldnn.matmul.fp32_precision = "none"  # type: ignore[attr-defined]


def test_the_older_switch(newer_switches: Any) -> None:
    assert matmul_precision(torch, "cpu") == matmul_precision(torch, "cuda") == "highest"


def test_a_script_that_used_the_newer_switches(newer_switches: Any) -> None:
    newer_switches.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="mix"):
        torch.get_float32_matmul_precision()
    assert (matmul_precision(torch, "cpu"), matmul_precision(torch, "cuda")) == ("highest", "high")
    newer_switches.mkldnn.matmul.fp32_precision = "bf16"
    assert matmul_precision(torch, "cpu") == "medium"


def test_facts_of_a_script_that_used_the_newer_switches(newer_switches: Any) -> None:
    interception = Interception(Hooks(torch=torch))
    clock = StepClock(interception.hooks, source="auto", scaling=interception, on_step=lambda: None)
    observer = Observer(interception, clock, Assignment(workload=WORKLOAD))
    newer_switches.cuda.matmul.fp32_precision = "tf32"
    assert observer.facts().matmul_precision == "highest"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A group of this process alone."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def sharded() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    return model


def test_gradients_of_a_model_that_processes_share(group: None, tmp_path: Path) -> None:
    interception = Interception(Hooks(torch=torch))
    StepClock(interception.hooks, source="auto", scaling=interception, on_step=lambda: None)
    recorder = InvariantsRecorder(interception, Assignment(workload=WORKLOAD, instruments=(CaptureGradients(),)))
    recorder.directory = tmp_path
    interception.install()
    try:
        model = sharded()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2, 6)).mean().backward()
        optimizer.step()
    finally:
        interception.suspend()
    with numpy.load(recorder.gradients_path) as saved:
        assert {name: saved[name].size for name in saved.files} == {
            "gradient/0.0.weight": 24,
            "gradient/0.0.bias": 4,
            "gradient/0.2.weight": 4,
            "gradient/0.2.bias": 1,
            "loss": 1,
        }


def test_weights_that_processes_share_are_nudged(group: None) -> None:
    model = sharded()
    weights: list[Any] = list(model.parameters())  # distributed tensors
    before = [it.to_local().clone() for it in weights]
    nudge_weights(torch, model, NudgeWeights())
    assert all((it.to_local() > old).all() for it, old in zip(weights, before, strict=True))


def test_weights_are_nudged_in_each_direction() -> None:
    def moved(towards: Literal["above", "below", "outward"]) -> list[int]:
        model = nn.Linear(3, 1, bias=False)
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[-1.0, 0.0, 1.0]]))
        before = model.weight.detach().clone()
        nudge_weights(torch, model, NudgeWeights(towards=towards))
        assert (model.weight - before).abs().max() <= torch.finfo(torch.float32).eps
        return (model.weight - before).sign().int().flatten().tolist()

    assert moved("above") == [1, 1, 1] and moved("below") == [-1, -1, -1] and moved("outward") == [-1, 1, 1]


def test_a_device_without_timed_events_is_waited_for_at_the_end_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says how reliable its phases are."""
    waits: list[str] = []
    monkeypatch.setattr("hotlap.runtime.clock.device_kind", lambda root: "mps")
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waits.append("waited"))
    hooks = Hooks(torch=torch)
    interception = Interception(hooks)
    clock = StepClock(hooks, source="auto", scaling=interception, on_step=lambda: None)
    interception.install()
    try:
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    finally:
        interception.suspend()
    assert not waits, "no step waits"
    clock.synchronise()
    assert waits == ["waited"]
    assert not clock.follows_device
    assert any("timed on the host" in it for it in hooks.notes)
