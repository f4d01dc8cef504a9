"""All collectors of one process, and the file in which everything that they saw is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from hotlap.evidence import RunEvidence
from hotlap.records import Steps
from hotlap.runtime.evidence.collector import Collector, Counter
from hotlap.runtime.evidence.garbage import GarbageWatch
from hotlap.runtime.evidence.layers import LayerWatch
from hotlap.runtime.evidence.loaders import LoaderWatch
from hotlap.runtime.evidence.loop_calls import LoopCallWatch
from hotlap.runtime.evidence.memory import MemoryWatch
from hotlap.runtime.evidence.numbers import NumberWatch
from hotlap.runtime.evidence.padding import PaddingWatch
from hotlap.runtime.evidence.sampled_lines import SampledLines
from hotlap.runtime.evidence.syncs import SyncWatch
from hotlap.runtime.evidence.window import ProfilerWindow
from hotlap.runtime.interception import Interception
from hotlap.runtime.unit_clock import UnitClock

COLLECTORS: tuple[Callable[[Interception, UnitClock], Collector], ...] = (
    SyncWatch,
    LoopCallWatch,
    NumberWatch,
    PaddingWatch,
    LayerWatch,
    MemoryWatch,
    GarbageWatch,
    SampledLines,
    # Last: its result fetches samples, and takes time and memory for it.
    LoaderWatch,
)


class Recorder:
    """Tells the collectors when to count, runs the profiler over the last steps, and writes the result.

    Calls are counted from the end of the first step on, and not while the profiler is running. ``rank`` says which of
    the processes that train together this one is.
    """

    def __init__(
        self,
        interception: Interception,
        clock: UnitClock,
        profiled_steps: int,
        directory: Path,
        rank: Callable[[], int],
    ) -> None:
        self._hooks = interception.hooks
        self._clock = clock
        self._directory = directory
        self._rank = rank
        self._collectors = tuple(make(interception, clock) for make in COLLECTORS)
        self._counters: tuple[Counter, ...] = tuple(it for it in self._collectors if isinstance(it, Counter))
        self._window = ProfilerWindow(interception, clock, profiled_steps, self._path_of_trace)
        self._counting = False
        self._observed: list[int] = []
        self._hooks.step_ended.insert(0, self._step_ended)  # what the other listeners do is not to be profiled

    def needs_more_steps(self) -> bool:
        """Whether a launch whose time is over should go on, so that the profiler gets its steps."""
        return self._window.is_to_come

    def step_begins(self, last_step: int, time_is_over: bool) -> None:
        """A step of a launch that goes on up to ``last_step`` is about to begin; called after everything else."""
        if self._window.is_due(last_step, time_is_over):
            self._pause()
            self._window.start()
        elif not self._window.running:
            self._resume()
        self._window.step_begins()

    def _step_ended(self) -> None:
        self._window.step_ended()
        if self._counting:
            self._observed.append(self._clock.steps_done - 1)

    def _pause(self) -> None:
        if self._counting:
            self._counting = False
            for counter in self._counters:
                counter.pause()

    def _resume(self) -> None:
        if not self._counting:
            self._counting = True
            for counter in self._counters:
                counter.resume()

    # -- the result ----------------------------------------------------------------------------

    def write(self, steps: Steps) -> str:
        """Write what was seen, and return where; nothing where it cannot be written. ``steps`` is the whole account.
        The process is about to end: nothing of the script's is run after this."""
        self._window.give_up()
        self._pause()
        evidence = RunEvidence(
            rank=self._rank(),
            observed_steps=len(self._observed),
            observed_seconds=sum(steps.wall_seconds[row] for row in self._observed),
            window=self._window.result(steps),
        )
        for collector in self._collectors:
            evidence = msgspec.structs.replace(evidence, **collector.result())
        path = self._directory / self._named("evidence", ".json")
        try:
            path.write_bytes(msgspec.json.encode(evidence))
        except OSError as error:
            self._hooks.note(f"The evidence could not be written: {error.strerror or error}.")
            return ""
        return str(path)

    def _path_of_trace(self) -> Path:
        return self._directory / self._named("window", ".json.gz")

    def _named(self, stem: str, suffix: str) -> str:
        """Processes that train together share a folder."""
        rank = self._rank()
        return f"{stem}-{rank}{suffix}" if rank else f"{stem}{suffix}"
