"""Collectives between processes, and what a step takes in more of them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record

CollectiveName: TypeAlias = Literal["all-reduce", "all-gather", "reduce-scatter"]


class CollectiveRate(Record, frozen=True, kw_only=True):
    """What one collective takes between ``processes``: ``latency_seconds`` plus the whole buffer's bytes divided by
    ``bytes_per_second``, fitted to the median times in ``seconds_by_bytes``.

    ``latency_error_seconds`` and ``bandwidth_error`` are standard errors of the fit, the second as a share of the
    bandwidth. ``largest_error`` is the largest share by which a point is off the line.
    """

    name: CollectiveName
    backend: str
    processes: int
    latency_seconds: float
    bytes_per_second: float
    latency_error_seconds: float = 0.0
    bandwidth_error: float = 0.0
    largest_error: float = 0.0
    seconds_by_bytes: tuple[tuple[int, float], ...] = ()


class CollectiveRates(Record, frozen=True, kw_only=True):
    """The collectives of this machine. ``hidden_share`` is the share of the shorter of a collective and a computation
    that vanished when both ran at the same time: 1 where they do not hinder each other, 0 where they take turns."""

    rates: tuple[CollectiveRate, ...] = ()
    hidden_share: float | None = None
