"""A trace in memory: accelerator events, host events by kind, and steps, as columns of integer nanoseconds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import ClassVar, NamedTuple, TypeAlias

from hotlap.traces.intervals import Span
from hotlap.traces.records import Coverage, TraceFacts

NONE = -1
"""The missing value in a column of indices."""

Selection: TypeAlias = Sequence[int]
"""Some events, in the order of their starts."""

_BLOCK = 64


class Events:
    """Events in the order of their starts, one list a property; ``name`` indexes :attr:`names`.

    ``columns`` are those properties that come from the file, one entry an event; a column that was not asked for is
    empty.
    """

    columns: ClassVar[tuple[str, ...]] = ("start", "end", "name")

    def __init__(self) -> None:
        self.start: list[int] = []
        self.end: list[int] = []
        self.name: list[int] = []
        self.names: list[str] = []
        self._named: dict[Callable[[str], object], frozenset[int]] = {}

    def __len__(self) -> int:
        return len(self.start)

    def name_of(self, event: int) -> str:
        """The name of an event."""
        return self.names[self.name[event]]

    def named(self, fits: Callable[[str], object]) -> frozenset[int]:
        """The numbers of the names that match; requires complete columns."""
        if fits not in self._named:
            self._named[fits] = frozenset(number for number, it in enumerate(self.names) if fits(it))
        return self._named[fits]

    def of(self, events: Selection, column: list[int]) -> list[int]:
        """A column's entries for some of the events."""
        return column if len(events) == len(self) else list(map(column.__getitem__, events))

    def spans(self, events: Selection) -> list[Span]:
        """The start and end of each of the events."""
        if len(events) == len(self):
            return list(zip(self.start, self.end, strict=True))
        start, end = self.start, self.end
        return [(start[it], end[it]) for it in events]


class KernelConfiguration(NamedTuple):
    """How a kernel was launched, as the profiler wrote it; None for what it did not write.

    ``blocks_per_multiprocessor`` and ``warps_per_multiprocessor`` are those of the whole grid over the number of
    multiprocessors, however many run at a time. ``occupancy_percent`` is Kineto's estimate of the warps that are
    resident over those that could be.
    """

    registers_per_thread: float | None
    shared_memory_bytes: float | None
    blocks_per_multiprocessor: float | None
    warps_per_multiprocessor: float | None
    occupancy_percent: float | None


class DeviceEvents(Events):
    """Work of the accelerators: kernels, copies and memsets.

    ``launch`` is the index of the call that issued the event, and ``step`` that of the step in which it was launched,
    or :data:`NONE`; ``launched`` is when that was, or the event's start where its launch is unknown. ``graph``
    identifies the graph that it was replayed from, and ``external`` the operator that it belongs to, where the trace
    says so. ``configuration`` indexes :attr:`Timeline.configurations` and ``message`` :attr:`Timeline.messages`, or is
    :data:`NONE`. These three are empty where the trace was read without operators' inputs.
    """

    columns = (*Events.columns, "kind", "device", "stream", "bytes", "graph", "correlation", "external",
               "configuration", "message")  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.kind: list[int] = []
        self.device: list[int] = []
        self.stream: list[int] = []
        self.bytes: list[int] = []
        self.graph: list[int] = []
        self.correlation: list[int] = []
        self.external: list[int] = []
        self.message: list[int] = []
        self.configuration: list[int] = []
        self.launch: list[int] = []
        self.launched: list[int] = []
        self.step: list[int] = []


class HostEvents(Events):
    """Host events of one kind. ``thread`` indexes :attr:`Timeline.threads`."""

    columns = (*Events.columns, "thread")

    def __init__(self) -> None:
        super().__init__()
        self.thread: list[int] = []

    @cached_property
    def threads(self) -> frozenset[int]:
        """The threads that have any of these events; requires complete columns."""
        return frozenset(self.thread)

    def overlapping(self, start: int, end: int) -> Iterator[int]:
        """The events that overlap a window, the last one first."""
        return self._reaching(bisect_left(self.start, end), start + 1)

    def around(self, moment: int, thread: int) -> list[int]:
        """The events of a thread that contain a moment, the outermost first."""
        begun = bisect_right(self.start, moment)
        found = [it for it in self._reaching(begun, moment) if self.thread[it] == thread]
        return sorted(found, key=lambda it: (self.start[it], -self.end[it], it))

    def _reaching(self, begun: int, moment: int) -> Iterator[int]:
        """List those of the first ``begun`` events that end at a moment or later, the last one first.

        The event around a moment may have begun a hundred thousand events before it, so blocks of events that all end
        earlier are skipped at once.
        """
        latest, latest_so_far = self._latest_ends
        while begun > 0:
            block = (begun - 1) // _BLOCK
            if latest_so_far[block] < moment:
                return
            if latest[block] >= moment:
                for event in range(begun - 1, block * _BLOCK - 1, -1):
                    if self.end[event] >= moment:
                        yield event
            begun = block * _BLOCK

    @cached_property
    def _latest_ends(self) -> tuple[list[int], list[int]]:
        """The latest end within each block of events, and up to and with it."""
        latest = [max(self.end[it : it + _BLOCK]) for it in range(0, len(self), _BLOCK)]
        return latest, list(accumulate(latest, max))


class Annotations(HostEvents):
    """Marks of torch, its libraries or the user. ``inputs`` indexes :attr:`Timeline.inputs`, or is :data:`NONE`; it is
    empty where the trace was read without operators' inputs."""

    columns = (*HostEvents.columns, "inputs")

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[int] = []


class Calls(HostEvents):
    """Calls into an accelerator's runtime or driver."""

    columns = (*HostEvents.columns, "correlation")

    def __init__(self) -> None:
        super().__init__()
        self.correlation: list[int] = []


class Operators(HostEvents):
    """Calls of operators. ``stack`` indexes :attr:`Timeline.stacks` and ``inputs`` :attr:`Timeline.inputs`, or is
    :data:`NONE`, and so does ``message`` :attr:`Timeline.messages`; ``external`` is the identifier by which device
    events name their operator. A forward operator and its backward one share their ``sequence``; ``forward_thread`` is
    the profiler's number of the thread that ran forward, and 0 or less for an operator that is not backward. ``flops``
    are floating-point operations, 0 where not written. ``stack`` is empty where no operator has one, the others where
    the trace was read without operators' inputs."""

    columns = (*HostEvents.columns, "stack", "inputs", "external", "sequence", "forward_thread", "message", "flops")

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[int] = []
        self.inputs: list[int] = []
        self.external: list[int] = []
        self.sequence: list[int] = []
        self.forward_thread: list[int] = []
        self.message: list[int] = []
        self.flops: list[int] = []


class Allocations(HostEvents):
    """Changes of memory that an allocator reported; each takes no time.

    ``change`` is how many bytes were allocated, or freed where negative; ``allocated`` and ``reserved`` are what the
    allocator then had given out and taken from the device, ``address`` where the memory is. ``device_type`` is torch's
    number of a kind of device, 0 for the host. :data:`~hotlap.traces.events.MISSING` stands for what is not written.
    """

    columns = (*HostEvents.columns, "change", "allocated", "reserved", "device_type", "device", "address")

    def __init__(self) -> None:
        super().__init__()
        self.change: list[int] = []
        self.allocated: list[int] = []
        self.reserved: list[int] = []
        self.device_type: list[int] = []
        self.device: list[int] = []
        self.address: list[int] = []


class Message(NamedTuple):
    """A collective's message: the elements that this rank sends and receives, of a type as torch names it (``Float``),
    among so many ranks of a process group. ``ranks`` is the verbatim text of the file; ``sequence`` counts the
    collectives of the group (None: not recorded)."""

    collective: str
    elements_in: int
    elements_out: int
    dtype: str
    group_size: int
    group: str
    ranks: str
    sequence: int | None


class Step(NamedTuple):
    """One of the profiler's step marks; ``number`` is the one in the mark's name."""

    number: int
    start: int
    end: int
    thread: int


class Timeline(NamedTuple):
    """One trace. Times are nanoseconds since ``facts.base_nanoseconds``; names are untrusted text.

    ``frames`` are calls of Python functions, only those that an analysis uses: the user's own, and some of the data
    loader and of compilation. ``overhead`` is the profiler's own work. ``stacks`` and ``inputs`` are JSON as recorded
    in the file: call stacks, and the shapes and types of operators' inputs. ``modules`` are calls of modules' forward,
    which ``frames`` leave out, ``configurations`` how kernels were launched, ``messages`` what collectives send, and
    ``allocations`` what allocators report; these are read with inputs.
    """

    facts: TraceFacts
    coverage: Coverage
    device: DeviceEvents
    calls: Calls
    operators: Operators
    annotations: Annotations
    frames: HostEvents
    overhead: HostEvents
    allocations: Allocations
    steps: tuple[Step, ...]
    threads: tuple[tuple[str, str], ...]
    stacks: tuple[bytes, ...]
    inputs: tuple[bytes, ...]
    messages: tuple[Message, ...]
    with_inputs: bool
    modules: HostEvents
    configurations: tuple[KernelConfiguration, ...]

    @property
    def host(self) -> tuple[HostEvents, ...]:
        """All host events, by kind. Calls of modules are left out: the frames of the same calls cover that time."""
        return self.calls, self.operators, self.annotations, self.frames, self.overhead

    @property
    def steps_span(self) -> Span | None:
        """From the first step's start to the last one's end; None where the trace marks no steps."""
        return (self.steps[0].start, max(it.end for it in self.steps)) if self.steps else None

    def by_device(self) -> Mapping[int, Selection]:
        """For each accelerator that did anything, by number, its events."""
        numbers = set(self.device.device)
        if len(numbers) == 1:
            return {number: range(len(self.device)) for number in numbers}
        found: dict[int, list[int]] = {}
        for event, device in enumerate(self.device.device):
            found.setdefault(device, []).append(event)
        return dict(sorted(found.items()))
