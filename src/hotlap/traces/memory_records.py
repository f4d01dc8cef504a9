"""Memory: frozen records, sizes in bytes, times in integer nanoseconds."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records import Record

Phase: TypeAlias = Literal["forward", "backward", "optimizer", "data_loader", "unknown"]


class MemoryPeak(Record, frozen=True, kw_only=True):
    """The first moment of the largest allocation. ``start_nanoseconds`` is on the trace's clock.

    ``step`` is None outside of steps. ``operator`` is the outermost that ran on the allocating thread, ``module`` the
    innermost module and ``place`` the innermost line of the user's code; they are empty where the trace has none.
    ``reserved_bytes`` is what the allocator then had taken from the device, None where that is not written.
    """

    start_nanoseconds: int
    allocated_bytes: int
    reserved_bytes: int | None = None
    step: int | None = None
    phase: Phase = "unknown"
    operator: str = ""
    module: str = ""
    place: str = ""


class PeakAllocation(Record, frozen=True, kw_only=True):
    """Memory that was in use at the peak, by the operator, module, line and phase that allocated it."""

    bytes: int
    allocations: int
    phase: Phase = "unknown"
    operator: str = ""
    module: str = ""
    place: str = ""


class StepMemory(Record, frozen=True, kw_only=True):
    """The most that was allocated during one step, and what was allocated at its end."""

    number: int
    peak_bytes: int
    end_bytes: int


class MemoryOverTime(Record, frozen=True, kw_only=True):
    """Allocated memory of one allocator over time; ``on_host`` is the CPU's.

    ``absolute`` says whether the trace gives totals; without them memory is counted from zero at the first change.
    ``samples`` are the most allocated in equal parts of the window, which starts at ``start_nanoseconds``.
    ``growth_bytes_per_step`` is the median change from the end of one step to the end of the next, None for fewer than
    three steps; ``grows_every_step`` says that no step ended with less than or as much as the one before.
    ``held_before_bytes`` is what was allocated at the peak and not during the trace, None where addresses are not
    written; ``holders`` are the rest of it, the largest first.
    """

    device: int
    peak: MemoryPeak
    on_host: bool = False
    absolute: bool = True
    changes: int = 0
    start_nanoseconds: int = 0
    nanoseconds: int = 0
    peak_reserved_bytes: int | None = None
    samples: tuple[int, ...] = ()
    steps: tuple[StepMemory, ...] = ()
    growth_bytes_per_step: int | None = None
    grows_every_step: bool = False
    held_before_bytes: int | None = None
    holders: tuple[PeakAllocation, ...] = ()
