"""Which of the user's lines the training thread is at, sampled some hundred times per second.

A thread of ours wakes at irregular intervals, so as not to synchronise with the script, and records where the training
thread is: the user's innermost line, what that line called, and the clock's phase. Each sample stands for the time
since the one before it, so a call that does not release the interpreter counts in full.

Start-up is sampled too, from torch's import on; steps that run under the profiler are not.
"""

from __future__ import annotations

import _thread
import gc
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain, repeat, takewhile
from operator import attrgetter, call, methodcaller
from random import Random
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

from hotlap.evidence import LineSamples, SampledLine, SampledPhase
from hotlap.records import CallSite
from hotlap.runtime.evidence.callers import Callers, passes_on
from hotlap.runtime.evidence.native_calls import NativeCalls
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.interception import Interception
from hotlap.runtime.originals import posix
from hotlap.runtime.stopwatch import OTHER, OUTSIDE, PHASE_NAMES
from hotlap.runtime.unit_clock import UnitClock

INTERVAL_SECONDS = 0.01
MOST_LINES = 400
MAXIMUM_DEPTH = 500
_SHORT_SWITCH_SECONDS = 2e-4
"""How long the training thread may keep the interpreter while we wait for it. With Python's own five milliseconds we
would get it only when an operator of torch releases it, and never see the Python in between."""

_SAME_SECONDS = 1e-9
_LONGEST_NAME = 120
_NANOSECONDS = 1e-9
_now = time.perf_counter

# Files of torch whose functions wait for other ranks; the last three names only.
_COLLECTIVE_FILES = ("torch/distributed/distributed_c10d.py", "torch/distributed/_functional_collectives.py")
_COLLECTIVE_NAMES = ("_distributed_broadcast_coalesced", "_sync_buffers", "_check_and_sync_module_buffers")

_NEXT_INDEX = ("_next_index", "torch/utils/data/dataloader.py")
"""torch's function that gets the indices of a batch from the sampler, and its file."""


class _Frame(NamedTuple):
    """What is kept of a frame, which itself would keep its variables alive."""

    code: CodeType
    instruction: int
    names: dict[str, Any]


_FRAME_FIELDS = ("f_code", "f_lasti", "f_globals")


class _Seen(NamedTuple):
    """Where the thread was; samples that are equal in all of this are counted together."""

    site: CallSite | None
    called: str
    innermost: str
    collective: bool
    native: str
    sampler: bool


class _Sample(NamedTuple):
    phase: SampledPhase
    seen: _Seen
    seconds: float
    asleep_seconds: float


_PHASES: tuple[SampledPhase, ...] = (*PHASE_NAMES[:OUTSIDE], "outside", "evaluation", "checkpoint")
_IN_STEPS = frozenset(PHASE_NAMES[:OUTSIDE])
_STEP_ENDED = -1
# The place of a sample, a marker that a step ended, or one that all since then was no training, but of this phase. A
# sample takes its place before the stack is read, since what follows takes time, and the thread that sets markers runs
# on meanwhile: a sample of what was before a marker must not come after it.
_Entry: TypeAlias = list[_Sample] | int
_Key: TypeAlias = tuple[SampledPhase, _Seen]


class SampledLines:
    """Samples from its making on, but for pauses. A process that forks is not sampled again before its step is over:
    forking with a second thread at work is what Python warns of."""

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        self._clock = clock
        self._callers = Callers(interception.hooks.torch)
        self._natives = NativeCalls(interception.hooks.torch)
        self._asleep = _SleepClock()
        self._fetching = False
        self._random = Random(0)
        self._log: list[_Entry] = []  # appended to by both threads, which is atomic
        self._over: Any = None
        self._done: Any = None
        self._own_switch_seconds = 0.0
        self._wanted = True
        hooks = interception.hooks
        hooks.around_fetch.append(self._fetch)
        hooks.was_outside.append(self._log.append)
        hooks.step_ended.append(self._step_ended)
        os.register_at_fork(before=self._stop, after_in_child=self._forked)
        self._start()

    def pause(self) -> None:
        self._wanted = False
        self._stop()

    def resume(self) -> None:
        self._wanted = True
        self._start()

    # -- the thread ------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._over is not None:
            return
        self._over, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._over.acquire()
        self._done.acquire()
        before = sys.getswitchinterval()
        if before > _SHORT_SWITCH_SECONDS:
            self._own_switch_seconds = before
            sys.setswitchinterval(_SHORT_SWITCH_SECONDS)
        # Not of `threading`, whose list of threads and whose hooks are the script's.
        _thread.start_new_thread(self._sample_until, (self._over, self._done))

    def _stop(self) -> None:
        if self._over is None:
            return
        self._over.release()
        self._done.acquire()
        self._over = self._done = None
        if abs(sys.getswitchinterval() - _SHORT_SWITCH_SECONDS) < _SAME_SECONDS:  # else the script has set its own
            sys.setswitchinterval(self._own_switch_seconds)

    def _forked(self) -> None:
        """In the child: its parent's samples are not its own, and a loader's worker is no trainer."""
        self._wanted = False
        self._asleep.forget()
        self._log.clear()

    def _sample_until(self, over: Any, done: Any) -> None:
        try:
            self._asleep.restart()
            last = _now()
            while not over.acquire(timeout=INTERVAL_SECONDS * self._random.uniform(0.5, 1.5)):
                last = self._sample(last)
        finally:
            done.release()  # whatever went wrong here, `_stop` on the script's own thread does not wait for ever

    def _sample(self, last: float) -> float:
        """Record where the thread is, ``last`` being the time of the sample before; the time of this one."""
        place: list[_Sample] = []
        self._log.append(place)
        stack = _stack_of(self._clock.trainer)  # at once: the thread runs on
        phase = self._phase()
        now = _now()
        seconds = now - last
        asleep_seconds = self._asleep.since_last(seconds)
        seen = self._seen(stack) if stack else None  # empty before the thread's first frame, and when it has ended
        if seen is not None:
            place.append(_Sample(phase, seen, seconds, asleep_seconds))
        return now

    def _seen(self, stack: Sequence[_Frame]) -> _Seen | None:
        """What a stack shows, its innermost frame first; None where the thread was at work for hotlap."""
        called = innermost = ""
        collective = False
        for index, frame in enumerate(stack):
            origin = self._callers.origin(frame.code.co_filename)
            if origin == "user":
                native = "" if called else self._natives.name(*frame)
                site = self._callers.site(frame.code, frame.instruction)
                return _Seen(site, called, innermost, collective, native, _is_choosing(stack))
            if origin == "between steps" or (origin == "own" and index == 0 and not passes_on(frame.code)):
                return None
            if origin != "own":
                called = _name_of(frame)
                innermost = innermost or called
                collective = collective or _is_collective(frame.code)
        return _Seen(None, called, innermost, collective, "", _is_choosing(stack))

    def _phase(self) -> SampledPhase:
        clock = self._clock
        if clock.steps_done == 0:
            return "first step" if clock.saw_forward else "startup"
        if self._fetching:
            return "data_wait"
        return _PHASES[clock.outside_phase if clock.evaluating and clock.phase == OTHER else clock.phase]

    # -- what the script is doing ------------------------------------------------------------------

    def _fetch(self, iterator: Any, fetch: Fetch) -> Any:
        outer, self._fetching = self._fetching, True
        try:
            return fetch()
        finally:
            self._fetching = outer

    def _step_ended(self) -> None:
        self._log.append(_STEP_ENDED)
        if self._wanted:
            self._start()

    # -- the result --------------------------------------------------------------------------------

    def result(self) -> dict[str, object]:
        """The field ``sampled``: lines with the most time first. A step that never ended is left out."""
        self._stop()
        totals: dict[_Key, list[float]] = {}
        running: list[_Sample] = []
        for entry in self._log:
            if isinstance(entry, list):
                running.extend(entry)
            elif entry != _STEP_ENDED:
                running = [it._replace(phase=_PHASES[entry]) if it.phase in _IN_STEPS else it for it in running]
            else:
                for it in running:
                    row = totals.setdefault((it.phase, it.seen), [0, 0.0, 0.0])
                    row[0] += 1
                    row[1] += it.seconds
                    row[2] += it.asleep_seconds
                running = []
        rows = sorted(totals.items(), key=lambda it: -it[1][1])[:MOST_LINES]
        return {
            "sampled": LineSamples(
                interval_seconds=INTERVAL_SECONDS,
                samples=sum(int(it[0]) for it in totals.values()),
                knows_sleep=self._asleep.known,
                lines=tuple(
                    SampledLine(
                        phase=phase,
                        samples=int(samples),
                        seconds=seconds,
                        asleep_seconds=asleep,
                        site=seen.site,
                        called=seen.called,
                        innermost=seen.innermost,
                        collective=seen.collective,
                        native=seen.native,
                        sampler=seen.sampler,
                    )
                    for (phase, seen), (samples, seconds, asleep) in rows
                ),
            )
        }


def _stack_of(thread: int) -> list[_Frame]:
    """Frames of another thread, innermost first; none before its first and when it has ended.

    Python 3.11 creates a frame object when a frame is first read, which can start a garbage collection. A finalizer
    may then let the other thread run, so that its frames vanish while they are read: a segmentation fault. So the
    collector is off while frames are read, and all of it is one call into C, during which no other thread runs: the
    script never sees its collector off.
    """
    innermost = map(methodcaller("get", thread), map(call, (sys._current_frames,)))
    frames = accumulate(chain(innermost, repeat("f_back", MAXIMUM_DEPTH - 1)), getattr)
    found: list[tuple[CodeType, int, dict[str, Any]]] = []
    read = partial(found.extend, map(attrgetter(*_FRAME_FIELDS), takewhile(bool, frames)))
    calls: tuple[Callable[[], object], ...] = (gc.disable, read, gc.enable) if gc.isenabled() else (read,)
    deque(map(call, calls), maxlen=0)
    return [_Frame(*it) for it in found]


class _SleepClock:
    """For how long this thread neither ran nor waited for a core, which the Linux kernel counts. What is unknown counts
    as awake. Made on the thread that it is about."""

    def __init__(self) -> None:
        self._read: Callable[[], bytes] | None = None
        with suppress(OSError):
            file = posix.open(f"/proc/self/task/{_thread.get_native_id()}/schedstat", posix.O_RDONLY | posix.O_CLOEXEC)
            self._read = lambda: posix.pread(file, 128, 0)
        self._last = 0.0
        self.restart()

    @property
    def known(self) -> bool:
        return self._read is not None

    def forget(self) -> None:
        """The thread is not there any more."""
        self._read = None

    def restart(self) -> None:
        self._last = self._awake()

    def since_last(self, seconds: float) -> float:
        """Of so many seconds that have passed since the last call."""
        before, self._last = self._last, self._awake()
        return min(seconds, max(0.0, seconds - (self._last - before))) if self._read is not None else 0.0

    def _awake(self) -> float:
        """Seconds on a core and in the queue for one (Linux, Documentation/scheduler/sched-stats.rst)."""
        if self._read is None:
            return 0.0
        try:
            on_core, in_queue, *_ = self._read().split()
        except (OSError, ValueError):
            self._read = None
            return 0.0
        return (int(on_core) + int(in_queue)) * _NANOSECONDS


def _name_of(frame: _Frame) -> str:
    """``torch.utils.tensorboard.writer.SummaryWriter.add_scalar``; ``import`` for the import system."""
    if frame.code.co_filename.startswith("<frozen importlib"):
        return "import"
    return f"{frame.names.get('__name__', '?')}.{frame.code.co_qualname}"[:_LONGEST_NAME]


def _is_choosing(stack: Sequence[_Frame]) -> bool:
    """Whether a loader is getting the indices of a batch from its sampler."""
    name, file = _NEXT_INDEX
    return any(it.code.co_name == name and it.code.co_filename.endswith(file) for it in stack)


def _is_collective(code: CodeType) -> bool:
    if code.co_name == "<module>":  # being imported
        return False
    return code.co_filename.endswith(_COLLECTIVE_FILES) or code.co_name in _COLLECTIVE_NAMES
