"""Evaluate without recording a graph for a backward pass.

## What it does
Runs the forward passes of an evaluation under `torch.no_grad()` where the script records a graph for them: those of a
model in evaluation mode (`model.eval()`) whose inputs require no gradient. A model that is also trained in evaluation
mode is left alone.

## When it helps
When memory peaks in the evaluation: its graph keeps the activations of every layer until the output is dropped, and its
batches are often larger than training's. The evaluation becomes faster as well, which `hotlap tune --goal evaluation`
measures.

## What it costs
Nothing, unless the script computes a gradient of what it evaluated after training steps have gone by without one:
`backward()` then raises an error, and nothing is trained wrongly.

## Before
    model.eval()
    for inputs, targets in validation_loader:
        total += criterion(model(inputs), targets).item()

## After
    model.eval()
    with torch.no_grad():
        for inputs, targets in validation_loader:
            total += criterion(model(inputs), targets).item()

## What is proved
`exact`: training steps are not changed. The losses must agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    EVALUATION_SECONDS,
    PEAK_BYTES,
    NoSourceForm,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Evaluate without recording a graph"
proof: Proof = "exact"
improves = (PEAK_BYTES, EVALUATION_SECONDS)
addresses = ("close-to-limit", "allocator-retries", "evaluation-cost")
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """Require an evaluation that records a graph."""
    evaluation = situation.facts.evaluation
    if evaluation is None:
        return Skipped(reason="No evaluation was observed between training steps.")
    if not evaluation.with_gradients:
        return Skipped(reason="The script's evaluation records no graph.", already=True)
    return None


def bound(situation: Situation) -> float | None:
    """Evaluation is no part of a step, so no step becomes faster."""
    return 1.0 if situation.account.wall > 0 else None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("evaluation-without-graph"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The lint rule for it has the edit."""
    return (
        NoSourceForm(reason="`hotlap lint --select HL352 --unsafe-fixes --fix` puts the evaluation under no_grad."),
    )


def install(hooks: Hooks, setting: Setting) -> None:
    """Turn gradients off in a root's evaluation forwards, once a backward has shown that it is trained in training
    mode."""
    evaluation = _Evaluation(hooks)
    hooks.before_forward.append(evaluation.begin)
    hooks.after_forward.append(lambda root, output: evaluation.end())
    hooks.forward_failed.append(evaluation.end)
    hooks.before_backward.append(evaluation.backward)


class _Evaluation:
    def __init__(self, hooks: Hooks) -> None:
        self._torch = hooks.torch
        self._modes: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        self._trains_in: set[bool] = set()
        self._running: AbstractContextManager[Any] | None = None

    def begin(self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Enter no_grad if this forward evaluates."""
        if root.training or self._trains_in != {True} or self._needs_gradients(args, kwargs):
            self._modes[root] = root.training
        else:
            self._running = self._torch.no_grad()
            self._running.__enter__()
        return args, kwargs

    def end(self) -> None:
        """Leave no_grad, also after a forward that failed."""
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._running = None

    def backward(self, loss: Any) -> Any:
        """Note the mode of the models that this backward trains: those called since the last one."""
        self._trains_in |= set(self._modes.values())
        self._modes.clear()
        return loss

    def _needs_gradients(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a tensor among the inputs requires a gradient."""
        return any(it.requires_grad for it in self._tensors((*args, *kwargs.values())))

    def _tensors(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if isinstance(value, self._torch.Tensor):
                yield value
            elif isinstance(value, Mapping):
                yield from self._tensors(value.values())
            elif isinstance(value, list | tuple):
                yield from self._tensors(value)
