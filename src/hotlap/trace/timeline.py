"""A trace in memory: accelerator events, host events and steps as columns of integer nanoseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hotlap.trace.dialects import Kind
from hotlap.trace.intervals import Times
from hotlap.trace.records import Coverage, TraceFacts

Column: TypeAlias = npt.NDArray[np.signedinteger[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]

NONE = -1
"""In a column of indices: there is none."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceEvents:
    """Work of the accelerators in order of its start: kernels, copies and memsets.

    ``launch`` is the index of the host call that issued the event, or :data:`NONE`; ``graph`` is the identifier of the
    graph it was replayed from where the trace gives one; ``step`` is the index of the step in which it was launched.
    """

    start: Times
    end: Times
    name: Column
    kind: Column
    device: Column
    stream: Column
    bytes: Column
    graph: Column
    launch: Column
    step: Column

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class HostEvents:
    """Calls, operators, annotations and Python functions in order of their start.

    ``stack`` indexes :attr:`Timeline.stacks`, or is :data:`NONE`.
    """

    start: Times
    end: Times
    name: Column
    kind: Column
    thread: Column
    stack: Column

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The profiler's step marks, in order; ``number`` is the one in the mark's name."""

    number: Column
    start: Times
    end: Times

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One trace. Times are nanoseconds since ``facts.base_nanoseconds``; names are untrusted text."""

    facts: TraceFacts
    coverage: Coverage
    device: DeviceEvents
    host: HostEvents
    steps: Steps
    names: tuple[str, ...]
    threads: tuple[tuple[str, str], ...]
    stacks: tuple[bytes, ...]

    def named(self, pattern: re.Pattern[str]) -> Mask:
        """For each name whether the pattern is found in it."""
        return np.fromiter((pattern.search(it) is not None for it in self.names), dtype=bool, count=len(self.names))

    def name_of(self, host_event: int) -> str:
        """The name of a host event."""
        return self.names[int(self.host.name[host_event])]

    def devices(self) -> list[int]:
        """The numbers of the accelerators that did anything."""
        return [int(it) for it in np.unique(self.device.device)]

    def on_device(self, device: int) -> Mask:
        """Which device events ran there."""
        there: Mask = self.device.device == device
        return there

    def launched_in_steps(self, first: int = 0, last: int | None = None) -> Mask:
        """Which device events were launched in the steps with index ``first`` up to, not including, ``last``.

        An event whose launch the trace lacks counts for the step in which it started.
        """
        stop = len(self.steps) if last is None else last
        return (self.device.step >= first) & (self.device.step < stop)


def is_kind(kinds: Column, *wanted: Kind) -> Mask:
    """Which events are of any of these kinds."""
    found: Mask = kinds == int(wanted[0])
    for kind in wanted[1:]:
        found |= kinds == int(kind)
    return found
