"""The lines at which a script calls torch.compile, observed in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from hotlap.records import Assignment, CallSite, Workload
from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.observer import Observer

WORKLOAD = Workload(kind="script", target=__file__, directory=str(Path(__file__).parent), python="python")


@pytest.fixture
def observer() -> Iterator[Observer]:
    interception = Interception(Hooks(torch=torch))
    clock = StepClock(interception.hooks, source="auto", scaling=interception, on_step=lambda: None)
    made = Observer(interception, clock, Assignment(workload=WORKLOAD))
    interception.install()
    yield made
    interception.suspend()


def compile_sites(observer: Observer) -> list[CallSite]:
    return [it for it in observer.facts().sites if it.role == "compile"]


def by_the_function() -> None:
    torch.compile(nn.Linear(2, 1), backend="eager")  # here


def by_the_method() -> None:
    nn.Linear(2, 1).compile(backend="eager")  # here


def by_the_namespace() -> None:
    torch.compiler.compile(nn.Linear(2, 1), backend="eager")  # here


def by_a_decorator() -> None:
    @torch.compile(backend="eager")  # here
    def step(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert step(torch.ones(1)).item() == 2.0


@pytest.mark.parametrize("ask", [by_the_function, by_the_method, by_the_namespace, by_a_decorator])
def test_the_line_that_compiles_is_known(observer: Observer, ask: Callable[[], None]) -> None:
    ask()
    lines, first = inspect.getsourcelines(ask)
    planted = first + next(index for index, line in enumerate(lines) if "# here" in line)
    assert {(it.file, it.line, it.function) for it in compile_sites(observer)} == {(__file__, planted, ask.__name__)}


def test_compiled_code_is_what_it_was(observer: Observer) -> None:
    assert str(inspect.signature(torch.compile)).startswith("(model")
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    x = torch.randn(3, 4)
    assert torch.equal(compiled(x), model(x))


def test_a_script_that_compiles_nothing_has_no_such_line(observer: Observer) -> None:
    nn.Linear(2, 1)(torch.ones(1, 2))
    assert compile_sites(observer) == []
