"""Collectives: frozen records, times in integer nanoseconds. Names are untrusted text."""

from __future__ import annotations

from hotlap.records import Record


class CollectiveRow(Record, frozen=True, kw_only=True):
    """All calls of one collective with the same process group, type and size.

    ``message_bytes`` is the size that NCCL's documentation calls S: what one rank sends or receives, whichever is more.
    ``algorithm_bytes_per_second`` is S over the time of the kernels, which includes waiting for ranks that arrive
    later. ``bus_bytes_per_second`` is that times the collective's factor, and can be compared with the hardware's
    bandwidth; ``best_bus_bytes_per_second`` is that of the shortest call, which waited least. The rates are None where
    the size is unknown, and for a group of one rank.
    """

    collective: str
    group: str
    group_size: int
    dtype: str
    message_bytes: int
    calls: int
    nanoseconds: int
    shortest_nanoseconds: int
    algorithm_bytes_per_second: float | None = None
    bus_bytes_per_second: float | None = None
    best_bus_bytes_per_second: float | None = None


class RankArrival(Record, frozen=True, kw_only=True):
    """When one rank entered the collectives that it shares with others.

    It entered ``times_last`` of ``collectives`` last. ``waited_for_nanoseconds`` is how long the others
    waited for it, the mean of the others summed over these calls; ``waiting_nanoseconds`` how long it waited itself.
    ``clock_offset_nanoseconds`` is how much later its clock is than that of the first rank, by the ends of collectives.
    """

    rank: int
    path: str
    collectives: int
    times_last: int
    waited_for_nanoseconds: int
    waiting_nanoseconds: int
    clock_offset_nanoseconds: int = 0


class LateArrival(Record, frozen=True, kw_only=True):
    """One call of a collective: ``rank`` arrived last, and the first rank to arrive waited ``nanoseconds`` for it.
    ``step`` is None where no step is marked, ``sequence`` where the trace does not number collectives."""

    rank: int
    collective: str
    group: str
    nanoseconds: int
    step: int | None = None
    sequence: int | None = None


class SharedCollectiveRow(Record, frozen=True, kw_only=True):
    """One collective with the same group, type and size as several ranks ran it.

    ``transfer_nanoseconds`` is the shortest kernel of each call, which is that of the last rank to arrive: the time
    without waiting. ``typical_nanoseconds`` is the median of these, ``shortest_nanoseconds`` the least. The bus
    bandwidth is over all of them. ``ranks`` are those whose traces have these calls.
    """

    collective: str
    group: str
    group_size: int
    dtype: str
    message_bytes: int
    calls: int
    transfer_nanoseconds: int
    waiting_nanoseconds: int
    bus_bytes_per_second: float | None = None
    typical_nanoseconds: int = 0
    shortest_nanoseconds: int = 0
    ranks: tuple[int, ...] = ()


class CollectiveComparison(Record, frozen=True, kw_only=True):
    """The collectives that several ranks of one run share: which rank arrived last, and how long the others waited.

    ``matched`` counts calls that were found on at least two ranks, and ``unmatched`` those found on one alone.
    """

    ranks: tuple[RankArrival, ...]
    matched: int
    unmatched: int = 0
    latest: tuple[LateArrival, ...] = ()
    rows: tuple[SharedCollectiveRow, ...] = ()


class ExposedCall(Record, frozen=True, kw_only=True):
    """One of the collectives of a step, named by its place: the ``position``-th of ``count`` of its kind that begin in
    a step. For ``nanoseconds``, those of all steps together, it ran while nothing was computed. ``message_bytes`` is 0
    where the trace does not describe messages."""

    collective: str
    message_bytes: int
    position: int
    count: int
    nanoseconds: int


class ExposedCommunication(Record, frozen=True, kw_only=True):
    """One rank's traced ``steps`` with their lengths, and how long in each of them communication ran while nothing was
    computed. ``calls`` are the collectives that this was in, the longest first."""

    rank: int
    steps: tuple[int, ...]
    exposed: tuple[int, ...]
    calls: tuple[ExposedCall, ...] = ()
