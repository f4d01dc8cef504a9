"""What strategies for several ranks add to a step on the processor, as torch's own classes do it.

FSDP2 copies what it gathers and reduces, and updates each sharded parameter through ``DTensor``; ZeRO-1
(``ZeroRedundancyOptimizer``) sends each updated parameter by itself. For small models all that takes longer than the
bare collectives. Here a model that computes next to nothing is trained with and without a strategy, by all processes at
the same time. What the strategy adds, divided by the number of parts or parameters, is fitted by their bytes.

A rank that updates its share of the parameters computes that share of the plain update, which is not counted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

from hotlap.machine.slowest import Stopwatch
from hotlap.records import CollectiveName, TrainedParts

PART_BYTES = (1 << 14, 1 << 17, 1 << 20, 1 << 23)
"""The bytes of a part: from a small convolution's up to those of a transformer's block."""

_PARTS = 4
_FEWEST_TRIES, _MOST_TRIES = 5, 50
_WARM_UP = 2
_LEAST_SECONDS = 1e-7
"""What is added may be less than the noise; a fit of relative errors needs a number above zero."""

_FLOAT_BYTES = 4

Points: TypeAlias = dict[CollectiveName, list[tuple[int, float]]]
"""By name, the bytes of a part or of a parameter and the seconds that one takes."""


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of the phases of a step, each on the slowest process."""

    forward: float
    backward: float
    update: float


def added_seconds(stopwatch: Stopwatch, seconds: float, parts: TrainedParts) -> Points:
    """What FSDP2 adds for one part, and FSDP2 and ZeRO-1 for one parameter, measured in about ``seconds``.

    All processes of the group must call this. Raises :class:`RuntimeError` or :class:`ValueError` where torch refuses
    such a model or optimizer.
    """
    training = _Training(stopwatch, seconds / (3 * len(PART_BYTES)), parts)
    points: Points = {"fsdp2-gather": [], "fsdp2-scatter": [], "fsdp2-update": [], "zero-1-update": []}
    for size in PART_BYTES:
        for name, of, found in training.added(size):
            points[name].append((of, max(_LEAST_SECONDS, found)))
    return points


class _Training:
    """Trains models of a few parts that compute next to nothing."""

    def __init__(self, stopwatch: Stopwatch, seconds: float, parts: TrainedParts) -> None:
        self._stopwatch, self._seconds = stopwatch, seconds
        self._parameters = max(1, parts.parameters)
        self._class = getattr(stopwatch.torch.optim, parts.optimizer)
        given = {"fused": parts.fused, "foreach": parts.foreach}
        self._options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}

    def added(self, size: int) -> Iterator[tuple[CollectiveName, int, float]]:
        """What is added for parts of so many bytes: its name, the bytes of one, its seconds."""
        plain, sharded, shared = (self._phases(size, it) for it in (self._plain, self._sharded, self._shared))
        gather = (sharded.forward - plain.forward) / _PARTS
        yield "fsdp2-gather", size, gather
        yield "fsdp2-scatter", size, (sharded.backward - plain.backward) / _PARTS - gather
        count, own = _PARTS * self._parameters, plain.update / self._stopwatch.processes
        yield "fsdp2-update", size // self._parameters, (sharded.update - own) / count
        yield "zero-1-update", size // self._parameters, (shared.update - own) / count

    def _plain(self, net: Any) -> Any:
        return self._class(net.parameters(), **self._options)

    def _sharded(self, net: Any) -> Any:
        from torch.distributed.fsdp import fully_shard

        for part in net:
            fully_shard(part)
        fully_shard(net)
        return self._plain(net)

    def _shared(self, net: Any) -> Any:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(net.parameters(), self._class, **self._options)

    def _phases(self, size: int, strategy: Callable[[Any], Any]) -> Phases:
        torch = self._stopwatch.torch
        elements = max(1, size // _FLOAT_BYTES // self._parameters)
        net = torch.nn.Sequential(*(_part(torch, self._parameters, elements) for _ in range(_PARTS)))
        optimizer = strategy(net)
        x = torch.ones(1, requires_grad=True)
        taken: list[list[float]] = [[], [], []]
        tries = _WARM_UP + _FEWEST_TRIES
        losses: list[Any] = []
        while len(taken[0]) < tries:
            times = (
                self._stopwatch.timed(lambda: losses.append(net(x).sum())),
                self._stopwatch.timed(lambda: losses.pop().backward()),
                self._stopwatch.timed(optimizer.step),
            )
            optimizer.zero_grad()
            for phase, one in zip(taken, self._stopwatch.slowest(times), strict=True):
                phase.append(one)
            if len(taken[0]) == _WARM_UP:
                step = sum(phase[-1] for phase in taken)
                tries = _WARM_UP + max(_FEWEST_TRIES, min(_MOST_TRIES, int(self._seconds / max(step, 1e-6))))
        return Phases(*(median(phase[_WARM_UP:]) for phase in taken))


def _part(torch: Any, parameters: int, elements: int) -> Any:
    class Part(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList(torch.ones(elements) for _ in range(parameters))

        def forward(self, x: Any) -> Any:
            return x + sum(it.sum() for it in self.weights)

    return Part()
