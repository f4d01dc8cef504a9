"""What one rank does in a step under each strategy, as tasks of two streams.

DDP reduces buckets while backward goes on (Li et al. 2020, "PyTorch Distributed"). ZeRO-1 is torch's
``ZeroRedundancyOptimizer`` around DDP: every rank updates its share and sends it to the others. FSDP2 gathers each part
before it is computed, one ahead, in forward and again in backward, and scatters the reduced gradients (Rajbhandari et
al. 2020, "ZeRO", stage 3; Zhao et al. 2023, "PyTorch FSDP").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from hotlap.records import CollectiveName, MeasuredStep, ReadyGradient, Strategy
from hotlap.scaling.simulate import Task

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
"""DDP's own sizes: the first bucket is smaller, so that communication begins early."""

Cost: TypeAlias = Callable[[CollectiveName, float], float]
"""Seconds of a collective over so many bytes."""


class Part(NamedTuple):
    """Gradients that are exchanged together: their bytes, and the seconds of backward that end with the last one."""

    size_bytes: int
    backward_seconds: float


def tasks_of(
    strategy: Strategy,
    step: MeasuredStep,
    ranks: int,
    cost: Cost,
    slowdown: float = 1.0,
    *,
    reshards: bool = True,
    in_buckets: bool = False,
) -> list[Task]:
    """The tasks of a step; computing takes ``slowdown`` times as long as was measured.

    FSDP2 gives gathered parameters up after forward unless ``reshards`` is false. ZeRO-1 sends updated parameters
    ``in_buckets`` as hotlap's lever does, else each by itself as torch's class does.
    """
    if strategy == "fsdp2":
        return _sharded(step, ranks, cost, slowdown, reshards=reshards)
    tasks = _replicated(step, ranks, cost, slowdown, share=1 / ranks if strategy == "zero-1" else 1.0)
    if strategy == "zero-1":
        sent = _sent_in_buckets(step, ranks, cost) if in_buckets else _sent_one_by_one(step, cost)
        tasks.append(Task("communicate", sent, (len(tasks) - 1,)))
    return tasks


def buckets(step: MeasuredStep) -> list[Part]:
    """The gradients in buckets as DDP fills them, in the order in which they are ready."""
    return _parts(step, lambda number, size_bytes: size_bytes >= (BUCKET_BYTES if number else FIRST_BUCKET_BYTES))


def units(step: MeasuredStep) -> list[Part]:
    """The gradients in as many parts of about the same size as FSDP2 wraps, in the order in which they are ready."""
    total = sum(it.size_bytes for it in step.gradients)
    share = total / max(1, step.units)
    return _parts(step, lambda number, size_bytes: size_bytes >= share - 1)


def _parts(step: MeasuredStep, is_full: Callable[[int, int], bool]) -> list[Part]:
    parts: list[Part] = []
    waiting: list[ReadyGradient] = []
    begins = 0.0
    for gradient in step.gradients:
        waiting.append(gradient)
        if is_full(len(parts), sum(it.size_bytes for it in waiting)):
            parts.append(_part(step, waiting, begins))
            begins, waiting = gradient.share, []
    if waiting:
        parts.append(_part(step, waiting, begins))
    return parts


def _part(step: MeasuredStep, gradients: Sequence[ReadyGradient], begins: float) -> Part:
    seconds = max(0.0, gradients[-1].share - begins) * step.backward_seconds
    return Part(sum(it.size_bytes for it in gradients), seconds)


def _replicated(step: MeasuredStep, ranks: int, cost: Cost, slowdown: float, *, share: float) -> list[Task]:
    """A step with whole gradients on every rank, which updates a ``share`` of the parameters."""
    tasks = [Task("compute", slowdown * (step.other_seconds + step.forward_seconds))]
    reduced: list[int] = []
    parts = buckets(step)
    for part in parts:
        tasks.append(Task("compute", slowdown * part.backward_seconds))
        tasks.append(Task("communicate", cost("all-reduce", part.size_bytes), (len(tasks) - 1,)))
        reduced.append(len(tasks) - 1)
    rest = step.backward_seconds - sum(it.backward_seconds for it in parts)
    tasks.append(Task("compute", slowdown * max(0.0, rest)))
    tasks.append(Task("compute", slowdown * share * step.optimizer_seconds, tuple(reduced)))
    return tasks


def _sent_one_by_one(step: MeasuredStep, cost: Cost) -> float:
    """Each parameter is sent by itself, so that many small ones take many latencies."""
    return _of_each_parameter("zero-1-update", step, cost)


def sharded_update_seconds(step: MeasuredStep, cost: Cost) -> float:
    """What updating sharded parameters takes beside computing."""
    return _of_each_parameter("fsdp2-update", step, cost)


def _of_each_parameter(name: CollectiveName, step: MeasuredStep, cost: Cost) -> float:
    growth = step.parameter_bytes / (sum(it.size_bytes for it in step.gradients) or 1)
    return sum(cost(name, growth * it.size_bytes) for it in step.gradients)


def _sent_in_buckets(step: MeasuredStep, ranks: int, cost: Cost) -> float:
    """Each rank's share is sent to all, in buckets. A broadcast moves the whole buffer to every other rank, of which an
    all-gather moves ``(ranks - 1) / ranks``."""
    count = ranks * math.ceil(step.parameter_bytes / ranks / BUCKET_BYTES)
    moved = step.parameter_bytes * ranks / max(1, ranks - 1)
    return count * cost("all-gather", moved / count) if count else 0.0


def _sharded(step: MeasuredStep, ranks: int, cost: Cost, slowdown: float, *, reshards: bool) -> list[Task]:
    parts = units(step)  # the last part of the model first
    timed = sum(it.backward_seconds for it in parts) or 1.0
    gradient_bytes = sum(it.size_bytes for it in parts) or 1
    growth = (step.parameter_bytes or gradient_bytes) / gradient_bytes
    tasks = [Task("compute", slowdown * step.other_seconds)]
    computed = [0]
    for part in reversed(parts):
        share = part.backward_seconds / timed if step.backward_seconds else 1 / len(parts)
        _gathered(
            tasks, computed, cost("fsdp2-gather", growth * part.size_bytes), slowdown * share * step.forward_seconds
        )
    reduced: list[int] = []
    gathered: tuple[int, ...] = ()  # the last part is kept from forward
    for number, part in enumerate(parts):
        tasks.append(Task("compute", slowdown * part.backward_seconds, gathered))
        computed.append(len(tasks) - 1)
        if reshards and number + 1 < len(parts):
            size_bytes = growth * parts[number + 1].size_bytes
            tasks.append(Task("communicate", cost("fsdp2-gather", size_bytes), (computed[-2],)))
            gathered = (len(tasks) - 1,)
        tasks.append(Task("communicate", cost("fsdp2-scatter", part.size_bytes), (computed[-1],)))
        reduced.append(len(tasks) - 1)
    rest = step.backward_seconds - sum(it.backward_seconds for it in parts)
    tasks.append(Task("compute", slowdown * max(0.0, rest)))
    update = slowdown * step.optimizer_seconds / ranks + sharded_update_seconds(step, cost)
    tasks.append(Task("compute", update, tuple(reduced)))
    return tasks


def _gathered(tasks: list[Task], computed: list[int], gather_seconds: float, compute_seconds: float) -> None:
    """Gather a part while the part before it is computed, then compute it."""
    before = (computed[-2],) if len(computed) > 1 else ()
    tasks.append(Task("communicate", gather_seconds, before))
    tasks.append(Task("compute", compute_seconds, (len(tasks) - 1,)))
    computed.append(len(tasks) - 1)
