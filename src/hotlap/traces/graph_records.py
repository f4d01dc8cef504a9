"""Replayed graphs: frozen records, times in integer nanoseconds. Names are untrusted text."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records import Record

KnownBy: TypeAlias = Literal["capture", "eager", "name", ""]


class GraphKernel(Record, frozen=True, kw_only=True):
    """All replays of the kernels, copies or memsets of one name that belong to the same operators.

    A replay names no operator, so ``known_by`` says how its operators were found. ``capture``: the trace holds an
    earlier capture with as many launches as the graph has nodes, of the same kinds in the same order. ``eager``:
    elsewhere in the trace these operators launched a kernel of this name; which of several it was is unknown. ``name``:
    the compiler named the kernel after them. Empty: unknown, and so are ``operators``.
    """

    name: str
    launches: int
    nanoseconds: int
    operators: tuple[str, ...] = ()
    known_by: KnownBy = ""


class GraphRow(Record, frozen=True, kw_only=True):
    """The replays of one graph from one place. ``graph`` is the profiler's number of it, None in old traces.

    ``operator``, ``module`` (instances, the outermost first) and ``place`` launched it; they are empty if unknown.
    ``launches`` counts the kernels, copies and memsets of all ``replays``. ``kernels`` are the costliest of
    ``distinct_kernels``; ``known_nanoseconds`` is the time of all whose operators are known.
    """

    graph: int | None
    operator: str = ""
    module: tuple[str, ...] = ()
    place: str = ""
    replays: int
    launches: int
    nanoseconds: int
    known_nanoseconds: int = 0
    kernels: tuple[GraphKernel, ...] = ()
    distinct_kernels: int = 0
