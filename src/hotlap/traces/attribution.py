"""Attribute each operator and launch to a module and a source line; backward to those of its forward operator.

Operators on one thread nest as calls do, and with them the calls that launch kernels and, where the profiler recorded
them, modules and the user's Python functions. One walk over all events in the order of their starts, with a stack for
each thread, finds what encloses what.

A backward operator carries the sequence number of its forward operator and the number of the thread that ran it, as the
profiler counts threads; Kineto draws its arrows ``fwdbwd`` from the same two. If several operators share a number, the
last one created the autograd node: the number grows with each node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, TypeAlias

from hotlap.traces.captures import captures
from hotlap.traces.chains import Chains
from hotlap.traces.dialects import BACKWARD, MODULE_PREFIX, is_users_frame
from hotlap.traces.events import MISSING
from hotlap.traces.hosts import frames_of
from hotlap.traces.timeline import NONE, Timeline


class Direction:
    """Forward (and everything else that is not backward); backward with a known forward operator; other backward."""

    FORWARD: Final = 0
    BACKWARD: Final = 1
    UNMAPPED: Final = 2


class Scope(NamedTuple):
    """The code that an event is attributed to. ``module`` and ``line`` are numbers of chains, for backward those of the
    forward operator; ``place`` is the innermost line of the user's code on the stack at that time, empty if there was
    none."""

    module: int = NONE
    line: int = NONE
    direction: int = Direction.FORWARD
    place: str = ""


class Launch(NamedTuple):
    """What launched some work: the innermost operator, or :data:`NONE`, and the scope."""

    operator: int
    scope: Scope


class _Open(NamedTuple):
    """Something that has begun and not yet ended."""

    end: int
    operator: int
    scope: Scope


_MODULE, _FRAME, _OPERATOR, _CALL = range(4)
"""Of events that begin and end together, the first encloses the others."""

_Begun: TypeAlias = tuple[int, int, int, int]
"""Start, descending end, kind, index: sorted by these, enclosing events come first."""

_NO_SEQUENCE = 2**63
"""Nodes that accumulate gradients have the largest unsigned 64-bit number, which is -1 as a signed one."""

_ALL_TIMES = (-(2**63), 2**63)
_NOWHERE = _Open(0, NONE, Scope())
_IN_BACKWARD = _Open(0, NONE, Scope(direction=Direction.UNMAPPED))


class Attribution:
    """Each operator's self host time, its kernels' device time and its scope; each launch's scope.

    ``in_steps`` is the window of what counts: from the first step's start to the last one's end, or all times.
    ``modules`` holds chains of module instances (``Linear_3``), ``lines`` those of the user's functions or lines.
    ``libraries`` are the installed packages of the process that was traced, if they are known: their code is not the
    user's.
    """

    def __init__(self, timeline: Timeline, libraries: Collection[str] = ()) -> None:
        self.timeline = timeline
        self._libraries = frozenset(libraries)
        table = timeline.operators
        self.own_nanoseconds = [end - start for start, end in zip(table.start, table.end, strict=True)]
        self.device_nanoseconds = [0] * len(table)
        self.in_steps = timeline.steps_span or _ALL_TIMES
        self.scopes = [_NOWHERE.scope] * len(table)
        self.launches: dict[int, Launch] = {}
        self.module_calls: Counter[int] = Counter()
        self.modules = Chains()
        self.lines = Chains()
        self._named = {identifier: event for event, identifier in enumerate(table.external) if identifier != MISSING}
        self._users = {number for number, it in enumerate(timeline.frames.names) if self._is_users(it)}
        self._engine = table.named(BACKWARD.search)
        self._stacks: dict[int, tuple[int, str]] = {}
        self._in_forward: dict[str, int] = {}
        self._forward: dict[tuple[int, int], int] = {}
        self._forward_threads = _forward_threads(timeline)
        self._walk()
        self._add_device_time()

    def launch_of(self, event: int) -> Launch:
        """Find what launched a device event; without a launch in the trace, by the event's own fields."""
        device = self.timeline.device
        launch = device.launch[event]
        if launch != NONE:
            return self.launches.get(launch, _UNKNOWN)
        operator = self._named.get(device.external[event], NONE) if device.external else NONE
        return _UNKNOWN if operator == NONE else Launch(operator, self.scopes[operator])

    def _walk(self) -> None:
        timeline = self.timeline
        tables = {_MODULE: timeline.modules, _FRAME: timeline.frames, _OPERATOR: timeline.operators,
                  _CALL: timeline.calls}  # fmt: skip
        outside = dict.fromkeys(self._backward_threads(), _IN_BACKWARD)
        open_of_thread: defaultdict[int, list[_Open]] = defaultdict(list)
        for start, negative_end, kind, event in self._begun():
            thread = tables[kind].thread[event]
            open_now = open_of_thread[thread]
            while open_now and open_now[-1].end <= start:
                open_now.pop()
            around = open_now[-1] if open_now else outside.get(thread, _NOWHERE)
            if kind == _CALL:
                self.launches[event] = Launch(around.operator, around.scope)
            elif kind == _OPERATOR:
                self._subtract(around.operator, start, -negative_end)
                self.scopes[event] = self._scope_of_operator(event, around.scope)
                open_now.append(_Open(-negative_end, event, self.scopes[event]))
            elif kind == _FRAME:
                open_now.append(_Open(-negative_end, around.operator, self._scope_of_frame(event, around.scope)))
            else:
                open_now.append(_Open(-negative_end, around.operator, self._scope_of_module(event, around.scope)))

    def _is_users(self, frame: str) -> bool:
        return is_users_frame(frame, self._libraries)

    def _begun(self) -> list[_Begun]:
        """Modules, frames, operators and launches (also captured ones) of all threads, each before what it encloses."""
        timeline = self.timeline
        launching = set(timeline.device.launch).union(*captures(timeline)) - {NONE}
        found: list[_Begun] = []
        for kind, table in ((_MODULE, timeline.modules), (_FRAME, timeline.frames), (_OPERATOR, timeline.operators)):
            spans = zip(table.start, table.end, strict=True)
            found += [(start, -end, kind, event) for event, (start, end) in enumerate(spans)]
        calls = timeline.calls
        found += [(calls.start[it], -calls.end[it], _CALL, it) for it in launching]
        found.sort()
        return found

    def _backward_threads(self) -> set[int]:
        """The threads that run only backward: gradients that old versions accumulated there are inside no operator."""
        running: set[int] = set()
        others: set[int] = set()
        for thread, number, _ in _sequenced(self.timeline):
            (running if number > 0 else others).add(thread)
        return running - others

    def _subtract(self, caller: int, start: int, end: int) -> None:
        """Subtract the time of called operators from an operator's self time."""
        if caller != NONE:
            self.own_nanoseconds[caller] -= min(end, self.timeline.operators.end[caller]) - start

    def _scope_of_frame(self, event: int, around: Scope) -> Scope:
        frames = self.timeline.frames
        if frames.name[event] not in self._users:
            return around
        name = frames.name_of(event)
        return around._replace(line=self.lines.below(around.line, name), place=name)

    def _scope_of_module(self, event: int, around: Scope) -> Scope:
        name = self.timeline.modules.name_of(event).removeprefix(MODULE_PREFIX)
        chain = self._chain_of_module(name, around)
        first, last = self.in_steps
        self.module_calls[chain] += first <= self.timeline.modules.start[event] < last
        return around._replace(module=chain)

    def _chain_of_module(self, name: str, around: Scope) -> int:
        """The scope in which an operator runs; within backward, that of its forward operator.

        A checkpoint may recompute it inside the backward of another module.
        """
        if around.direction != Direction.FORWARD and name in self._in_forward:
            return self._in_forward[name]
        chain = self.modules.below(around.module, name)
        if around.direction == Direction.FORWARD:
            self._in_forward.setdefault(name, chain)
        return chain

    def _scope_of_operator(self, event: int, around: Scope) -> Scope:
        table = self.timeline.operators
        scope = self._with_stack(event, around)
        sequence = table.sequence[event] if table.sequence else MISSING
        if 0 <= sequence < _NO_SEQUENCE:
            thread, number = table.thread[event], table.forward_thread[event]
            if number <= 0:
                self._forward[thread, sequence] = event
                return scope
            process = self.timeline.threads[thread][0]
            forward = self._forward.get((self._forward_threads.get((process, number), NONE), sequence))
            if forward is not None:
                there = self.scopes[forward]
                return Scope(there.module, there.line, Direction.BACKWARD, scope.place)
        if scope.direction == Direction.FORWARD and table.name[event] in self._engine:
            return scope._replace(direction=Direction.UNMAPPED)
        return scope

    def _with_stack(self, event: int, around: Scope) -> Scope:
        """The scope with the lines of the call stack that old versions wrote with each operator."""
        stack = self.timeline.operators.stack[event] if self.timeline.stacks else NONE
        if stack == NONE or around.direction == Direction.BACKWARD:
            return around
        if stack not in self._stacks:
            users = [it for it in frames_of(self.timeline.stacks[stack]) if self._is_users(it)]
            self._stacks[stack] = self.lines.of(reversed(users)), users[0] if users else ""
        line, place = self._stacks[stack]
        return around._replace(line=line, place=place) if place else around

    def _add_device_time(self) -> None:
        """Attribute every device event to the operator that launched it."""
        device = self.timeline.device
        for event, (start, end) in enumerate(zip(device.start, device.end, strict=True)):
            operator = self.launch_of(event).operator
            if operator != NONE:
                self.device_nanoseconds[operator] += end - start


_UNKNOWN = Launch(NONE, Scope())


def _forward_threads(timeline: Timeline) -> dict[tuple[str, int], int]:
    """Map the profiler's numbers of forward threads to threads of the trace, for each process.

    A number belongs to the thread whose forward operators share most sequence numbers with the backward operators that
    carry it.
    """
    forward: defaultdict[int, set[int]] = defaultdict(set)
    backward: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for thread, number, sequence in _sequenced(timeline):
        if number > 0:
            backward[timeline.threads[thread][0], number].add(sequence)
        else:
            forward[thread].add(sequence)
    found: dict[tuple[str, int], int] = {}
    for (process, number), sequences in backward.items():
        shared = {
            thread: len(sequences & those)
            for thread, those in forward.items()
            if timeline.threads[thread][0] == process
        }
        if any(shared.values()):
            found[process, number] = max(shared, key=shared.__getitem__)
    return found


def _sequenced(timeline: Timeline) -> Iterator[tuple[int, int, int]]:
    """Thread, number of the forward thread, and sequence number of each operator that has one."""
    table = timeline.operators
    columns = zip(table.thread, table.forward_thread, table.sequence, strict=False)
    return (it for it in columns if 0 <= it[2] < _NO_SEQUENCE)
