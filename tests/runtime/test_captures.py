"""Steps that a script replays as CUDA graphs: not counted while captured, counted when replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception


class Graph:
    """Replaces torch's own, which needs a device: a replay does ``work``."""

    def __init__(self) -> None:
        self.work: Callable[[], None] = lambda: None
        self.error: Exception | None = None

    def capture_begin(self) -> None:
        if self.error is not None:
            raise self.error

    def capture_end(self) -> None:
        pass

    def replay(self) -> None:
        self.work()


class Script:
    """A loop whose step can be captured, and the hooks that were called."""

    def __init__(self) -> None:
        self.hooks = Hooks(torch=torch)
        self.interception = Interception(self.hooks)
        self.clock = StepClock(self.hooks, source="auto", scaling=self.interception, on_step=lambda: None)
        self.interception.install()
        self.told: list[str] = []
        self.hooks.before_forward.append(lambda root, args, kwargs: self.told.append("forward") or (args, kwargs))
        self.hooks.before_backward.append(lambda loss: self.told.append("backward") or loss)
        self.hooks.after_update.append(lambda optimizer: self.told.append("update"))
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loss = torch.zeros(())

    def step(self, *, updates: bool = True) -> None:
        self.loss = self.model(torch.ones(2, 4)).square().mean()
        self.loss.backward()
        if updates:
            self.optimizer.step()

    def capture(self, *, updates: bool = True) -> Graph:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        self.step(updates=updates)
        graph.capture_end()
        assert isinstance(graph, Graph)
        return graph


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    made = Script()
    yield made
    made.interception.suspend()


def test_captured_work_is_not_reported(script: Script) -> None:
    script.step()
    script.told.clear()
    script.capture()
    assert script.told == []
    assert script.clock.steps_done == 1
    script.step()
    assert script.told == ["forward", "backward", "update"], "afterwards everything is normal"


def test_each_replay_is_a_step_with_the_loss_that_it_left(script: Script) -> None:
    script.step()
    graph = script.capture()
    losses = iter((0.5, 0.25, 0.125))
    graph.work = lambda: script.loss.detach().fill_(next(losses))  # type: ignore[assignment]
    for _ in range(3):
        graph.replay()
    script.clock.drain()
    assert script.clock.steps().loss[1:] == (0.5, 0.25, 0.125)
    assert len(script.hooks.notes) == 1 and "CUDA graphs" in script.hooks.notes[0]


def test_a_step_whose_update_is_not_captured_ends_with_the_update(script: Script) -> None:
    script.step()
    graph = script.capture(updates=False)
    graph.replay()
    assert script.clock.steps_done == 1
    script.optimizer.step()
    assert script.clock.steps_done == 2


def test_a_graph_without_a_backward_is_no_step(script: Script) -> None:
    script.step()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    script.model(torch.ones(2, 4))
    graph.capture_end()
    graph.replay()
    assert script.clock.steps_done == 1
    assert not script.hooks.notes


def test_after_a_capture_that_fails_all_goes_on(script: Script) -> None:
    graph = torch.cuda.CUDAGraph()
    assert isinstance(graph, Graph)
    graph.error = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    with pytest.raises(RuntimeError, match="capturing"):
        graph.capture_begin()
    script.step()
    assert script.told == ["forward", "backward", "update"]


def test_the_classes_are_left_as_they_were(script: Script) -> None:
    backward = torch.autograd.backward
    script.capture()
    assert torch.autograd.backward is backward
    script.interception.suspend()
    assert Graph.replay.__name__ == "replay" and not hasattr(Graph.replay, "__wrapped__")
    script.interception.resume()


def test_a_capture_that_ends_while_all_is_suspended_resumes_nothing(script: Script) -> None:
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    script.interception.suspend()
    graph.capture_end()
    script.step()
    assert script.told == []
    script.interception.resume()
    script.step()
    assert script.told == ["forward", "backward", "update"]
