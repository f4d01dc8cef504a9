"""Counting and timing calls within training steps: what every collector of calls shares.

One :class:`CallWatch` serves all collectors of a process, so that they agree on what a step is, and so that a call
within a call is not counted twice.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from hotlap.records import CallSite, Phase
from hotlap.runtime.evidence.callers import Caller, Callers
from hotlap.runtime.evidence.unnoticed import builtin_like, named_alike, never_compile
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.interception import Interception
from hotlap.runtime.stopwatch import PHASE_NAMES
from hotlap.runtime.unit_clock import UnitClock

Function: TypeAlias = Callable[..., Any]
Group: TypeAlias = Literal["sync", "loop"]
_now = time.perf_counter


class Seen(NamedTuple):
    """What one call was; ``group``, where it turned out to be of another than it is watched for; ``within``, where
    calls that a line makes by different functions of libraries are told apart."""

    kind: str
    on_device: bool = False
    bytes: int = 0
    group: Group | None = None
    within: str = ""


# Looks at a call that has just returned (its arguments, its result, who called); None where it is not to be counted.
Look: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any], Any, Caller], Seen | None]
# Whether a call can be of interest at all, by its arguments; if not, it is as good as not watched.
Interesting: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], bool]


class Place(NamedTuple):
    """Calls with the same place are counted together."""

    group: Group
    kind: str
    phase: Phase
    site: CallSite | None
    on_device: bool
    within: str = ""


@dataclass(slots=True)
class Count:
    """What all calls of one place add up to; ``steps`` is in how many steps there was one."""

    calls: int = 0
    steps: int = 0
    seconds: float = 0.0
    bytes: int = 0


_watches: WeakKeyDictionary[Interception, CallWatch] = WeakKeyDictionary()


def watch_of(interception: Interception, clock: UnitClock) -> CallWatch:
    """The one watch that all collectors of this interception share, made for the first of them. It begins paused."""
    watch = _watches.get(interception)
    if watch is None:
        watch = _watches[interception] = CallWatch(interception, clock)
    return watch


class CallWatch:
    """Wraps functions so that calls in training steps are counted, by the user's line that they come from.

    Only the thread that trains is watched, since a step waits for no other. Of nested calls of one group the outermost
    counts. A call of group ``sync`` within one of group ``loop`` counts as well, and where it waited for a device, that
    time is not the outer one's.
    What was called in a step that never ended is left out.
    """

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        self._torch = interception.hooks.torch
        self._replace = interception.patches.replace
        self._is_compiling: Callable[[], bool] = self._torch.compiler.is_compiling
        self._clock = clock
        self._callers = Callers(self._torch)
        self._trainer = threading.get_ident()
        self.counting = False
        self._inside: set[Group] = set()
        self._waited_seconds = 0.0
        self._running: dict[Place, Count] = {}
        self._counts: dict[Place, Count] = {}
        self._fetching = False
        self._evaluating = False
        self._saw_forward = False
        never_compile(self._torch, self._finished, with_what_it_calls=True)
        hooks = interception.hooks
        hooks.around_fetch.append(self._fetch)
        hooks.around_evaluation.append(self._evaluation)
        hooks.before_forward.append(self._forward_begins)
        hooks.step_ended.append(self._step_ended)
        os.register_at_fork(after_in_child=self.pause)  # a loader's worker trains nothing

    def pause(self) -> None:
        """Stop counting."""
        self.counting = False

    def resume(self) -> None:
        """Resume counting."""
        self.counting = True

    def counts(self, group: Group) -> Iterator[tuple[Place, Count]]:
        """What was seen in the steps that ended, what took longest first."""
        return iter(
            sorted(
                ((place, count) for place, count in self._counts.items() if place.group == group),
                key=lambda it: -it[1].seconds,
            )
        )

    # -- wrapping functions --------------------------------------------------------------------

    def wrap(
        self, owner: Any, name: str, group: Group, look: Look, interesting: Interesting = lambda args, kwargs: True
    ) -> None:
        """Count the calls of ``owner.name``; nothing happens where this version of torch has no such name."""
        if not hasattr(owner, name):
            return
        function: Function = getattr(owner, name)
        self._replace(owner, name, named_alike(owner, name, self._timing(function, group, look, interesting)))

    def wrap_builtin(self, owner: ModuleType, name: str, group: Group, look: Look) -> None:
        """The same for one of Python's own functions, which a class may hold without its becoming a method."""
        function: Function = getattr(owner, name)
        timing = self._timing(function, group, look, lambda args, kwargs: True)
        self._replace(owner, name, builtin_like(function, timing))

    def _timing(self, function: Function, group: Group, look: Look, interesting: Interesting) -> Function:
        is_compiling, trainer, inside, this_thread = (
            self._is_compiling,
            self._trainer,
            self._inside,
            threading.get_ident,
        )

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.counting or group in inside or is_compiling() or this_thread() != trainer:
                return function(*args, **kwargs)
            if not interesting(args, kwargs):
                return function(*args, **kwargs)
            inside.add(group)
            waited_seconds, began = self._waited_seconds, _now()
            try:
                result = function(*args, **kwargs)
            finally:
                seconds = _now() - began
                inside.discard(group)
            self._finished(group, look, args, kwargs, result, seconds - (self._waited_seconds - waited_seconds))
            return result

        never_compile(self._torch, call)
        never_compile(self._torch, interesting)
        return call

    def _finished(
        self, group: Group, look: Look, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, seconds: float
    ) -> None:
        """Count a call that took so long by itself, if it is to be counted. The caller's frame is two above ours."""
        caller = self._callers.of(sys._getframe(2))
        seen = None if caller is None else look(args, kwargs, result, caller)
        if caller is None or seen is None:
            return
        if seen.on_device:
            self._waited_seconds += seconds
        place = Place(seen.group or group, seen.kind, self._phase(caller), caller.site, seen.on_device, seen.within)
        count = self._running.get(place)
        if count is None:
            count = self._running[place] = Count()
        count.calls += 1
        count.seconds += seconds
        count.bytes += seen.bytes

    # -- what the script is doing --------------------------------------------------------------

    def _phase(self, caller: Caller) -> Phase:
        """The clock's phase; but a closure within ``optimizer.step`` is not the optimizer, and torch's work around it
        (clipping, unscaling) is."""
        if self._evaluating:
            return "outside"
        if caller.updating:
            return "optimizer"
        if self._fetching:
            return "data_wait"
        phase = PHASE_NAMES[self._clock.phase]
        return "other" if phase == "optimizer" else phase

    def _fetch(self, iterator: Any, fetch: Fetch) -> Any:
        outer, self._fetching = self._fetching, True
        try:
            return fetch()
        finally:
            self._fetching = outer

    def _forward_begins(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._saw_forward = True
        self._evaluating = False
        return args, kwargs

    def _evaluation(self, root: Any, call: Fetch) -> Any:
        """As the clock has it: up to an evaluation's forward, nothing since the last step was the training's."""
        result = call()
        if not self._saw_forward:
            self._evaluating = True
            so_far, self._running = self._running, {}
            for place, count in so_far.items():
                _add(self._running, place._replace(phase="outside"), count)
        return result

    def _step_ended(self) -> None:
        for place, count in self._running.items():
            count.steps = 1
            _add(self._counts, place, count)
        self._running.clear()
        self._saw_forward = self._evaluating = False


def _add(counts: dict[Place, Count], place: Place, more: Count) -> None:
    count = counts.setdefault(place, Count())
    count.calls += more.calls
    count.steps += more.steps
    count.seconds += more.seconds
    count.bytes += more.bytes
