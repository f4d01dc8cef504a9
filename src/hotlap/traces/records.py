"""The analysis of a trace: frozen records, times in integer nanoseconds.

Names of kernels, calls and places come out of the file and are untrusted text.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records import Record
from hotlap.traces.code_records import CodeTime
from hotlap.traces.collective_records import CollectiveRow
from hotlap.traces.graph_records import GraphRow
from hotlap.traces.memory_records import MemoryOverTime
from hotlap.traces.path_records import CriticalPath


class TraceFacts(Record, frozen=True, kw_only=True):
    """A trace's own metadata. ``base_nanoseconds`` added to any time gives the time since 1970. ``device_ids`` are
    the numbers of the devices that ``device_names`` names, None where one has none; ``device_capabilities`` are their
    compute capabilities, as ``9.0``, empty where one is not written."""

    path: str
    name: str = ""
    base_nanoseconds: int = 0
    rank: int | None = None
    world_size: int | None = None
    device_names: tuple[str, ...] = ()
    device_ids: tuple[int | None, ...] = ()
    device_capabilities: tuple[str, ...] = ()

    def name_of_device(self, device: int) -> str:
        """By number, else by place; for a number that is not listed the name that all devices share, if they do."""
        named = dict(zip(self.device_ids, self.device_names, strict=False))
        if device in named:
            return named[device]
        if not any(it is not None for it in self.device_ids) and 0 <= device < len(self.device_names):
            return self.device_names[device]
        return self.device_names[0] if len(set(self.device_names)) == 1 else ""

    def capability_of(self, name: str) -> str:
        """The compute capability of the devices of this name; empty where the trace does not say."""
        return dict(zip(self.device_names, self.device_capabilities, strict=False)).get(name, "")


class Coverage(Record, frozen=True, kw_only=True):
    """How every event of the file was treated.

    ``events = device_events + host_events + other_events + invalid_events + unreadable_events``. ``invalid_events``
    have no time, a negative duration or an absurd one; ``repaired_events`` were read although their text is not JSON or
    their fields have unusual types; ``other`` counts by category what is read but not analysed, arrows, instants,
    counters and names in one. ``graph_launches_in_part`` have fewer device events than other launches of the same
    graph. ``ended_early`` says why the file stops before its end; it is empty for a whole file. ``remark`` describes
    anything else unusual about the file.
    """

    bytes_read: int
    events: int
    device_events: int = 0
    host_events: int = 0
    other_events: int = 0
    invalid_events: int = 0
    unreadable_events: int = 0
    repaired_events: int = 0
    linked_events: int = 0
    unlinked_events: int = 0
    graph_launches: int = 0
    graph_launches_without_kernels: int = 0
    graph_launches_in_part: int = 0
    other: tuple[tuple[str, int], ...] = ()
    ended_early: str = ""
    remark: str = ""


class DeviceTime(Record, frozen=True, kw_only=True):
    """How a device spent a window. A span that several streams share counts once.

    ``busy + idle = window``. ``exposed_communication_nanoseconds`` is communication during which the device computed
    nothing; ``overlapped_communication_nanoseconds`` is the rest of it.
    """

    window_nanoseconds: int
    busy_nanoseconds: int
    compute_nanoseconds: int
    communication_nanoseconds: int
    exposed_communication_nanoseconds: int
    copy_nanoseconds: int
    memset_nanoseconds: int
    memory_nanoseconds: int
    events: int

    @property
    def idle_nanoseconds(self) -> int:
        return self.window_nanoseconds - self.busy_nanoseconds

    @property
    def exposed_copy_nanoseconds(self) -> int:
        """Copies and memsets during which the device neither computed nor communicated."""
        return max(0, self.busy_nanoseconds - self.compute_nanoseconds - self.exposed_communication_nanoseconds)

    @property
    def overlapped_communication_nanoseconds(self) -> int:
        return self.communication_nanoseconds - self.exposed_communication_nanoseconds


class StreamIdle(Record, frozen=True, kw_only=True):
    """The waits between consecutive events of one stream, by what the second event waited for.

    Host wait: it was launched after the first had ended. Kernel wait: it had been launched, and began within 30
    microseconds. Other: it had been launched and began later, for example because it waited for another stream.
    """

    stream: int
    events: int
    host_wait_nanoseconds: int
    kernel_wait_nanoseconds: int
    other_nanoseconds: int
    host_waits: int
    kernel_waits: int
    others: int


class CopyRow(Record, frozen=True, kw_only=True):
    """All copies of one direction and one kind of host memory."""

    direction: str
    memory: str
    copies: int
    nanoseconds: int
    bytes: int


class KernelRow(Record, frozen=True, kw_only=True):
    """One kernel, copy or memset by name. ``tensor_cores`` is None where the name does not show it.

    ``occupancy`` (resident warps over the largest possible number, estimated from the launch) and blocks and warps per
    multiprocessor (of the whole grid) are means weighted by time; registers and shared memory those of the launch with
    most. All are None where the trace does not say. ``few_blocks_nanoseconds`` is the time of launches with less than
    half a block per multiprocessor, ``without_block_nanoseconds`` that times the share of multiprocessors without one.
    """

    name: str
    kind: Literal["kernel", "copy", "memset"]
    launches: int
    nanoseconds: int
    shortest_nanoseconds: int
    longest_nanoseconds: int
    communication: bool = False
    tensor_cores: bool | None = None
    occupancy: float | None = None
    blocks_per_multiprocessor: float | None = None
    warps_per_multiprocessor: float | None = None
    registers_per_thread: int | None = None
    shared_memory_bytes: int | None = None
    few_blocks_nanoseconds: int = 0
    without_block_nanoseconds: int = 0


class KernelSummary(Record, frozen=True, kw_only=True):
    """The kernels together. ``launch_cost_nanoseconds`` is the median time of a launch call on the host;
    ``short_kernels`` ran shorter than that. ``per_step`` is None for a trace without steps."""

    kernels: int
    distinct: int
    nanoseconds: int
    short_kernels: int
    short_nanoseconds: int
    launch_cost_nanoseconds: int | None
    per_step: float | None

    @property
    def short_share(self) -> float:
        return self.short_kernels / self.kernels if self.kernels else 0.0


Cause: TypeAlias = Literal[
    "data_loader",
    "host_sync",
    "blocking_copy",
    "launch_bound",
    "communication",
    "capture_or_compile",
    "initialisation",
    "between_steps",
    "profiler",
    "queued",
    "unknown",
]


class Evidence(Record, frozen=True, kw_only=True):
    """An observation in the gaps of a cause: a host call, an operator, a Python place, and how much idle
    time it goes with. Only the longest gaps are examined for it."""

    role: Literal["loader", "call", "operator", "place", "next_kernel"]
    name: str
    gaps: int
    nanoseconds: int


class IdleCause(Record, frozen=True, kw_only=True):
    """The device's idle time that goes to one cause."""

    cause: Cause
    nanoseconds: int
    gaps: int
    longest_nanoseconds: int
    host_operator_nanoseconds: int = 0
    evidence: tuple[Evidence, ...] = ()


class Gap(Record, frozen=True, kw_only=True):
    """One idle gap of a device, from the end of all earlier work to the start of the next.

    ``cause`` is the largest of ``parts``. ``start_nanoseconds`` counts from the start of the window.
    ``call``, ``operator`` and ``place`` are what the host did; empty where the trace does not say.
    """

    start_nanoseconds: int
    nanoseconds: int
    cause: Cause
    parts: tuple[tuple[Cause, int], ...]
    before: str
    after: str
    call: str = ""
    operator: str = ""
    place: str = ""


class Idle(Record, frozen=True, kw_only=True):
    """All idle time between a device's first and last event, by cause, and the longest gaps."""

    nanoseconds: int
    gaps: int
    causes: tuple[IdleCause, ...] = ()
    longest: tuple[Gap, ...] = ()


class OperatorRow(Record, frozen=True, kw_only=True):
    """One operator with the shapes and types of its inputs, as the host called it.

    ``host_nanoseconds`` is its own host time, without the operators it called; ``device_nanoseconds`` that of the
    kernels which it launched itself, and ``tensor_core_nanoseconds`` that of those which run on tensor cores by their
    names. ``longest_nanoseconds`` is the host time of its longest call. ``place`` is the innermost line of the user's
    code, empty where the trace has none. ``shapes`` and ``types`` go together, one entry an input; both are empty where
    they were not recorded. ``backward_calls`` of the calls were made by autograd's backward pass, and ``forward_place``
    is the line of most of what they are the gradients of. ``flops`` are the floating-point operations of one call,
    where the profiler counted them or wrote a convolution's stride, and 0 otherwise. ``steps`` is the number of marked
    steps in which operators of this name were called at this place, whatever their inputs (0: no steps are marked):
    those of an evaluation between two steps are called in few.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...] = ()
    types: tuple[str, ...] = ()
    calls: int = 1
    host_nanoseconds: int = 0
    longest_nanoseconds: int = 0
    device_nanoseconds: int = 0
    tensor_core_nanoseconds: int = 0
    place: str = ""
    backward_calls: int = 0
    forward_place: str = ""
    flops: int = 0
    steps: int = 0


class HostTime(Record, frozen=True, kw_only=True):
    """What the threads that train did within the steps, on the host's clock. The parts are disjoint and add up:
    ``step = loader + sync + operator + python``.

    ``loader_nanoseconds``: inside the data loader, whatever ran there. ``sync_nanoseconds``: waiting for a device.
    ``operator_nanoseconds``: inside an operator or a call into the accelerator's runtime, in any of these threads, or
    in autograd's engine between two of its operators; ``backward_nanoseconds`` is the engine's part of it.
    ``python_nanoseconds`` is the rest: Python, and whatever else the profiler does not see. A profiler that records
    Python functions makes it longer.
    """

    step_nanoseconds: int
    operator_nanoseconds: int
    loader_nanoseconds: int
    sync_nanoseconds: int
    python_nanoseconds: int
    backward_nanoseconds: int = 0


class StepTime(Record, frozen=True, kw_only=True):
    """One step on the host's clock, and what the device did in that time.

    ``kernels`` are those launched in the step. ``loader_nanoseconds`` is how long the host waited for the data loader.
    """

    number: int
    start_nanoseconds: int
    nanoseconds: int
    loader_nanoseconds: int
    device: DeviceTime | None = None
    kernels: int = 0


class DeviceBreakdown(Record, frozen=True, kw_only=True):
    """One accelerator. ``time`` is the window from its first event's start to its last event's end; ``in_steps`` is
    the window from the first step's start to the last step's end, None for a trace without steps."""

    device: int
    name: str
    start_nanoseconds: int
    time: DeviceTime
    in_steps: DeviceTime | None
    steps: tuple[StepTime, ...]
    streams: tuple[StreamIdle, ...]
    copies: tuple[CopyRow, ...]
    kernels: tuple[KernelRow, ...]
    kernel_summary: KernelSummary
    idle: Idle


class Breakdown(Record, frozen=True, kw_only=True):
    """The breakdown of one trace. ``operators`` and ``host_time`` are those of a trace without devices, where
    they were asked for, and so are ``code``, the time by module and source line, ``graphs``, which were replayed,
    ``collectives``, ``memory`` and ``critical_path``. ``unreliable`` gives the reason why its figures must not be
    trusted, and is empty otherwise; ``notes`` say what a reader should know besides."""

    facts: TraceFacts
    coverage: Coverage
    host_nanoseconds: int
    steps: tuple[StepTime, ...] = ()
    devices: tuple[DeviceBreakdown, ...] = ()
    operators: tuple[OperatorRow, ...] = ()
    host_time: HostTime | None = None
    code: CodeTime | None = None
    graphs: tuple[GraphRow, ...] = ()
    collectives: tuple[CollectiveRow, ...] = ()
    memory: tuple[MemoryOverTime, ...] = ()
    critical_path: CriticalPath | None = None
    unreliable: str = ""
    notes: tuple[str, ...] = ()

    @property
    def busiest_device(self) -> DeviceBreakdown | None:
        return max(self.devices, key=lambda it: it.time.busy_nanoseconds, default=None)


Limit: TypeAlias = Cause | Literal["compute", "copies", "python"]


class Conclusion(Record, frozen=True, kw_only=True):
    """The bottleneck of a trace, and its share of the window: a cause of idle time (``communication`` with what is
    exposed of it), copies, the host's Python, or computing if no loss is large enough."""

    limit: Limit
    nanoseconds: int
    window_nanoseconds: int

    @property
    def share(self) -> float:
        return self.nanoseconds / self.window_nanoseconds if self.window_nanoseconds else 0.0


class RankTime(Record, frozen=True, kw_only=True):
    """One rank's device time in the steps that are compared, or in its whole window where traces mark no steps.

    ``waiting_nanoseconds`` is how much longer than the rank that waited least it was in communication that nothing
    hid, step by step.
    """

    rank: int
    path: str
    device: int
    window_nanoseconds: int
    busy_nanoseconds: int
    compute_nanoseconds: int
    communication_nanoseconds: int
    exposed_communication_nanoseconds: int
    waiting_nanoseconds: int

    @property
    def idle_nanoseconds(self) -> int:
        return self.window_nanoseconds - self.busy_nanoseconds

    @property
    def waiting_share(self) -> float:
        return self.waiting_nanoseconds / self.window_nanoseconds if self.window_nanoseconds else 0.0


class RankComparison(Record, frozen=True, kw_only=True):
    """The ranks of one training run side by side, by rank.

    ``steps`` are those that all traces have; none: the traces mark no steps, and whole windows are compared.
    ``waited_for`` is the rank that the others wait for, None where they wait for no one in particular;
    ``waiting_share`` is the mean share of the step that the other ranks wait; ``missing_ranks`` counts those of the run
    that have no trace here.
    """

    ranks: tuple[RankTime, ...]
    steps: tuple[int, ...] = ()
    waited_for: int | None = None
    waiting_share: float = 0.0
    missing_ranks: int = 0
