"""Compare strategies with the one that a script uses, from the step that was measured under that one.

What the script's own strategy exchanges is part of the measured step. It is taken out first: computing is made shorter
until the simulated step of that strategy is as long as the measured one. The others are simulated with the same
computing, so that what the simulator gets wrong about a script is in both steps of a ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hotlap.records import Cluster, CollectiveName, MeasuredStep, Strategy, ValidatedError
from hotlap.scaling.arithmetic import peak_bytes
from hotlap.scaling.links import collective_seconds
from hotlap.scaling.predict import hidden_share_of
from hotlap.scaling.schedules import sharded_update_seconds, tasks_of
from hotlap.scaling.simulate import Simulated, simulate

_HALVINGS = 40


class Way(NamedTuple):
    """A strategy, and of FSDP2 whether gathered parameters are given up after forward."""

    strategy: Strategy
    reshards: bool = True


class Compared(NamedTuple):
    """A strategy's step over that of the script's own, and the peak of one rank (0: not known)."""

    ratio: float
    peak_bytes: int


class Comparer:
    """The measured step of ``ranks`` processes under the script's ``own`` strategy, with its exchange taken out.

    ``exposed_seconds`` is what of the step only that takes. ``copies`` of the gradients are held by DDP. Raises
    :class:`ValueError` where the measured collectives alone take longer than the step.
    """

    def __init__(self, step: MeasuredStep, cluster: Cluster, ranks: int, own: Way, *, copies: int = 2) -> None:
        self._cluster, self._ranks, self._copies = cluster, ranks, copies
        self._step = self._without_exchange(self._with_whole_update(step, own), own, step.seconds)
        self._own = self._simulated(self._step, own)
        self.exposed_seconds = self._own.exposed_seconds

    def compared(self, way: Way) -> Compared:
        """What another strategy would take and hold."""
        found = self._simulated(self._step, way)
        peak = peak_bytes(way.strategy, self._step, self._ranks, copies=self._copies, reshards=way.reshards)
        return Compared(found.seconds / self._own.seconds, peak)

    def _simulated(self, step: MeasuredStep, way: Way) -> Simulated:
        tasks = tasks_of(way.strategy, step, self._ranks, self._cost, reshards=way.reshards, in_buckets=True)
        return simulate(tasks, hidden_share_of(way.strategy, self._cluster))

    def _cost(self, name: CollectiveName, size_bytes: float) -> float:
        return collective_seconds(name, size_bytes, self._ranks, self._cluster)

    def _with_whole_update(self, step: MeasuredStep, own: Way) -> MeasuredStep:
        """The step with the update of all parameters, of which FSDP2's rank computed its share."""
        if own.strategy != "fsdp2":
            return step
        computed = max(0.0, step.optimizer_seconds - sharded_update_seconds(step, self._cost))
        return msgspec.structs.replace(step, optimizer_seconds=self._ranks * computed)

    def _without_exchange(self, step: MeasuredStep, own: Way, measured_seconds: float) -> MeasuredStep:
        low, high = 0.0, 1.0
        if self._simulated(_shortened(step, own, low), own).seconds > measured_seconds:
            raise ValueError("the measured collectives take longer than the step")
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            too_long = self._simulated(_shortened(step, own, middle), own).seconds > measured_seconds
            low, high = (low, middle) if too_long else (middle, high)
        return _shortened(step, own, high)


def _shortened(step: MeasuredStep, own: Way, factor: float) -> MeasuredStep:
    """The step with the phases shorter in which the strategy exchanges something."""
    gathers = own.strategy == "fsdp2"
    return msgspec.structs.replace(
        step,
        backward_seconds=factor * step.backward_seconds,
        forward_seconds=(factor if gathers else 1.0) * step.forward_seconds,
    )


def ratio_error(errors: Sequence[ValidatedError], strategy: Strategy, ranks: int) -> float | None:
    """The largest error of the ratio to DDP's step that was validated for so many processes: of the fewest that are as
    many at least. None beyond."""
    for it in errors:
        if it.strategy == strategy:
            return next((error for count, error in sorted(it.ratio_errors) if count >= ranks), None)
    return None
