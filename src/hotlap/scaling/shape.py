"""A step's shape from its trace: when backward finished which gradient."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from hotlap.records import MeasuredStep, MemoryAmounts, PhaseAccount, ReadyGradient
from hotlap.traces import Timeline
from hotlap.traces.inputs import shapes_and_types
from hotlap.traces.timeline import NONE, Step

_ACCUMULATE = re.compile(r"^torch::autograd::AccumulateGrad$")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function: ")
_OPTIMIZER = re.compile(r"^Optimizer\.step#")
_BYTES = {"double": 8, "c10::BFloat16": 2, "c10::Half": 2, "c10::complex<float>": 8}
_USUAL_BYTES = 4
_NANOSECONDS = 1e-9
_MOST_STEPS = 500


class Backward(NamedTuple):
    """The last backward pass of one step, in nanoseconds of the trace: its begin, its end, and each gradient's bytes
    with the moment at which it was ready."""

    begin: int
    end: int
    ready: tuple[tuple[int, int], ...]


def step_of(
    timeline: Timeline,
    account: PhaseAccount | None = None,
    *,
    backwards: float = 1.0,
    step_seconds: Sequence[float] = (),
    units: int = 1,
    threads: int = 0,
    amounts: MemoryAmounts | None = None,
) -> MeasuredStep | None:
    """The measured step; None where the trace has no backward pass with shapes of gradients within a marked step.

    The seconds of its phases are those of ``account``, and without one those of the trace itself, which profiling made
    longer. Of several backward passes per step all but the last count as forward.
    """
    found = [it for it in (_backward(timeline, step, round(backwards)) for step in timeline.steps) if it is not None]
    if not found:
        return None
    gradients = _gradients(found)
    size_bytes = sum(it.size_bytes for it in gradients)
    if not size_bytes:
        return None
    forward, backward, optimizer, other = _phases(timeline, found, account, backwards)
    return MeasuredStep(
        forward_seconds=forward,
        backward_seconds=backward,
        optimizer_seconds=optimizer,
        other_seconds=other,
        gradients=gradients,
        step_seconds=tuple(step_seconds)[-_MOST_STEPS:],
        samples=account.samples_per_step if account is not None else 1.0,
        units=max(1, units),
        threads=threads,
        parameter_bytes=amounts.parameters if amounts is not None else size_bytes,
        gradient_bytes=amounts.gradients if amounts is not None else size_bytes,
        optimizer_bytes=amounts.optimizer_state if amounts is not None else 0,
        activation_bytes=_rest(amounts) if amounts is not None else None,
    )


def _rest(amounts: MemoryAmounts) -> int:
    return amounts.activations + amounts.inputs + amounts.temporaries


def _phases(
    timeline: Timeline, found: Sequence[Backward], account: PhaseAccount | None, backwards: float
) -> tuple[float, float, float, float]:
    if account is not None:
        backward = account.seconds_in("backward") / max(1.0, backwards)
        forward = account.seconds_in("forward") + account.seconds_in("backward") - backward
        optimizer = account.seconds_in("optimizer")
        return forward, backward, optimizer, max(0.0, account.wall - forward - backward - optimizer)
    steps = [it for it in timeline.steps if any(it.start <= other.begin < it.end for other in found)]
    backward = fmean(it.end - it.begin for it in found)
    forward = fmean(other.begin - it.start for it, other in zip(steps, found, strict=True))
    wall = fmean(it.end - it.start for it in steps)
    updates = sum(map(_optimizer(timeline), steps)) / len(steps)
    rest = max(0.0, wall - forward - backward - updates)
    return forward * _NANOSECONDS, backward * _NANOSECONDS, updates * _NANOSECONDS, rest * _NANOSECONDS


def _optimizer(timeline: Timeline) -> Callable[[Step], int]:
    """A function for the nanoseconds that a step's optimizers took, by torch's own marks."""
    marks = timeline.annotations
    named = marks.named(_OPTIMIZER.match)
    found = [(marks.start[it], marks.end[it]) for it in range(len(marks)) if marks.name[it] in named]
    return lambda step: sum(end - begin for begin, end in found if step.start <= begin < step.end)


def _backward(timeline: Timeline, step: Step, passes: int) -> Backward | None:
    operators = timeline.operators
    backward, accumulate = operators.named(_BACKWARD.match), operators.named(_ACCUMULATE.match)
    inside = [it for it in range(len(operators)) if step.start <= operators.start[it] < step.end]
    ready = [it for it in inside if operators.name[it] in accumulate]
    if not ready:
        return None
    ready.sort(key=lambda it: operators.end[it])
    each = len(ready) // max(1, passes)
    last = ready[-each:] if each else ready
    earlier = operators.end[ready[-each - 1]] if 0 < each < len(ready) else step.start
    nodes = [it for it in inside if operators.name[it] in backward and operators.start[it] >= earlier]
    begin = min((operators.start[it] for it in nodes), default=operators.start[last[0]])
    end = max([operators.end[it] for it in nodes] + [operators.end[last[-1]]])
    return Backward(begin, end, tuple((_size_bytes(timeline, it), operators.end[it]) for it in last))


def _size_bytes(timeline: Timeline, operator: int) -> int:
    inputs = timeline.operators.inputs
    if not inputs or inputs[operator] == NONE:
        return 0
    shapes, types = shapes_and_types(timeline.inputs[inputs[operator]])
    if not shapes:
        return 0
    return math.prod(shapes[0]) * _BYTES.get(types[0], _USUAL_BYTES)


def _gradients(found: Sequence[Backward]) -> tuple[ReadyGradient, ...]:
    """The gradients of the last step; moments are the mean over steps that finished the same ones in the same order."""
    sizes = [size for size, _ in found[-1].ready]
    alike = [it for it in found if [size for size, _ in it.ready] == sizes]
    shares = [[(moment - it.begin) / max(1, it.end - it.begin) for _, moment in it.ready] for it in alike]
    means = [min(1.0, fmean(column)) for column in zip(*shares, strict=True)]
    return tuple(ReadyGradient(share=share, size_bytes=size) for share, size in zip(means, sizes, strict=True))
