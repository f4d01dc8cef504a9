"""The critical path: frozen records, times in integer nanoseconds."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records import Record

PathKind: TypeAlias = Literal[
    "compute", "communication", "copy", "queue", "launch", "sync_return", "operator", "loader", "python"
]


class PathPart(Record, frozen=True, kw_only=True):
    """The time of one kind on the critical path.

    On the device: ``compute``, ``communication`` (with the time that it waits for other ranks) and ``copy`` (memsets
    too); ``queue`` from the end of earlier work to the start of the next. Between: ``launch`` from a launch call to the
    start of its kernel, ``sync_return`` from the end of what the host waited for to its return. On the host:
    ``loader``, ``operator`` (and calls into the runtime), and ``python`` for the rest.
    """

    kind: PathKind
    nanoseconds: int


class PathContributor(Record, frozen=True, kw_only=True):
    """A kernel, copy, operator or wait for the data loader, by name, and its time on the critical path.

    ``operator`` launched the kernel, and ``place`` is the innermost line of the user's code, both at its longest
    appearance on the path; they are empty where the trace does not say.
    """

    kind: PathKind
    name: str
    nanoseconds: int
    times: int
    operator: str = ""
    place: str = ""


class StepPath(Record, frozen=True, kw_only=True):
    """The part of the critical path from the start of one step to the start of the next; of the last step to the path's
    end."""

    number: int
    nanoseconds: int
    parts: tuple[PathPart, ...] = ()


class CriticalPath(Record, frozen=True, kw_only=True):
    """The chain of work that decided how long the steps took, for the busiest device and the threads that issue its
    work. The parts are disjoint and add up to ``nanoseconds``. Without steps it is that of the whole trace."""

    device: int
    start_nanoseconds: int
    nanoseconds: int
    parts: tuple[PathPart, ...] = ()
    steps: tuple[StepPath, ...] = ()
    contributors: tuple[PathContributor, ...] = ()
