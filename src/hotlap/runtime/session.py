"""One process of a trial: the first step, then block after block as the controller lets it, then the report."""

from __future__ import annotations

import atexit
import os
import resource
import time
from collections.abc import Callable, MutableSequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hotlap.records import (
    Arrived,
    Assignment,
    Block,
    BlockDone,
    CollectEvidence,
    End,
    Hello,
    Observe,
    Proceed,
    Report,
    Run,
    ScriptFacts,
)
from hotlap.runtime import compile_report, connections
from hotlap.runtime.call_clock import CallClock
from hotlap.runtime.channel import Channel
from hotlap.runtime.checkouts import imported_from_original
from hotlap.runtime.clock import StepClock
from hotlap.runtime.copies import time_copies
from hotlap.runtime.device_memory import DevicePeaks, allocator_retries
from hotlap.runtime.devices import device_kind
from hotlap.runtime.entrance import flush
from hotlap.runtime.interception import Interception
from hotlap.runtime.invariants import InvariantsRecorder
from hotlap.runtime.observer import Observer
from hotlap.runtime.process_groups import be_patient, place_in_group, wait_until_forgotten
from hotlap.runtime.script_calls import ScriptCalls
from hotlap.runtime.step_counter import open_counter
from hotlap.runtime.unit_clock import UnitClock

if TYPE_CHECKING:
    from hotlap.runtime.evidence.recorder import Recorder
    from hotlap.runtime.files import Redirection

_ANSWERS_OF_OBJECTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a property or a method of a user's object may raise when it is read or called."""


class Session:
    """Ties clock, observers and channel together. Nothing here runs in a process that never trains.

    Without a ``redirection`` the report names no files.
    """

    def __init__(
        self, assignment: Assignment, address: str, run_directory: Path, redirection: Redirection | None = None
    ) -> None:
        self.assignment = assignment
        self.run_directory = run_directory
        self._redirection = redirection
        self._address = address
        self._channel = Channel(address)
        self._process = os.getpid()
        self._block: _OpenBlock | None = None
        self._lead_in = 0
        self._retries_before = 0
        self._arrived = self._hello_sent = False
        self._began = time.perf_counter()
        self._reported = False
        self._evidence: Recorder | None = None
        self._counter: MutableSequence[int] | memoryview[int] | None = None

    def begin(self, interception: Interception) -> None:
        """Hang clock and observers onto the hooks; called right after torch's import, before any lever's."""
        self._interception = interception
        self._hooks = interception.hooks
        self._roots = interception.roots
        self._torch = interception.hooks.torch
        self._peaks = DevicePeaks(self._torch)
        evidence = self.assignment.instrument(CollectEvidence)
        kind = CallClock if self.assignment.step_source == "call" else StepClock
        if kind is CallClock:
            interception.roots.wait_for_root()
            if self.assignment.workload.kind != "inference":
                ScriptCalls(interception).install()
        self.clock: UnitClock = kind(
            self._hooks,
            source=self.assignment.step_source,
            scaling=interception,
            on_step=self._step_ended if evidence is None else self._watched_step_ended,
        )
        time_copies(self._torch, self.clock, interception.patches.replace)
        be_patient(self._torch, interception.patches.replace)
        self._observer = Observer(interception, self.clock, self.assignment)
        self._invariants = InvariantsRecorder(interception, self.assignment)
        self._invariants.directory = self.run_directory
        if evidence is not None:
            from hotlap.runtime.evidence.recorder import Recorder  # other launches need not wait for it

            self._evidence = Recorder(
                interception,
                self.clock,
                evidence.profiled_steps,
                self.run_directory,
                lambda: place_in_group(self._torch)[0],
            )
        # Watching begins once torch's compiler is loaded, which may be by now or only with the first model.
        compile_report.start(self._torch)
        self._hooks.after_optimizer.append(lambda optimizer: compile_report.start(self._torch))
        self._hooks.model_found.append(lambda root: compile_report.start(self._torch))
        if self.assignment.waits_on_device:
            self._hooks.model_found.append(self._wait_on_device)
        atexit.register(self._script_ended)
        self._exit = os._exit
        interception.patches.replace(os, "_exit", self._script_exits)
        os.register_at_fork(after_in_child=self._forked)

    # -- steps ---------------------------------------------------------------------------------

    def _step_ended(self) -> None:
        if self._counter is None:
            self._counter = open_counter(self.run_directory)
        self._counter[0] = self.clock.steps_done
        for tell in self._hooks.step_ended:
            tell()
        block = self._block
        if block is not None:  # first, since it is the case in nearly every step
            if self.clock.steps_done >= block.asked_from and block.complete(self.clock.steps_done):
                self._close_block()
                self._await_word()
        elif not self._hello_sent:
            self._say_hello()
            self._await_word()
        elif self._lead_in > 0:
            self._lead_in -= 1
            if self._lead_in == 0:
                self._open_block()

    def _watched_step_ended(self) -> None:
        """The same where evidence is collected, whose keeping takes time that belongs to no step."""
        self._step_ended()
        assert self._evidence is not None
        if self._block is not None:
            self._evidence.step_begins(self._block.last_step, self._block.time_is_over())
        self.clock.resume()

    def _wait_on_device(self, root: Any) -> None:
        if self._arrived or self._hello_sent or device_kind(root) == "cpu":
            return
        self._arrived = True
        self._channel.send(Arrived(process=os.getpid()))
        if isinstance(self._channel.receive(), End):
            self._leave()
        self.clock.resume()

    def _say_hello(self) -> None:
        self._hello_sent = True
        self._interception.intercept_safetensors()
        self.clock.synchronise()
        rank, processes = place_in_group(self._torch)
        self._channel.send(
            Hello(
                process=os.getpid(),
                rank=rank,
                processes=processes,
                startup_seconds=time.perf_counter() - self._began,
            )
        )

    def _await_word(self) -> None:
        word = self._channel.receive()
        if isinstance(word, End):
            self._leave()
        assert isinstance(word, Proceed)
        self._lead_in = word.lead_in
        self._wanted = word
        if word.configuration is not None:
            for tell in self._hooks.configuration_changed:
                tell(word.configuration)
        self.clock.resume()
        if word.lead_in == 0:
            self._open_block()

    def _open_block(self) -> None:
        self.clock.synchronise()
        held = self._evidence.needs_more_steps if self._evidence is not None else None
        self._retries_before = allocator_retries(self._torch)
        if self._wanted.configuration is not None:
            self._peaks.begin_block()
        self._block = _OpenBlock(self._wanted, self.clock.steps_done, held, self._awaits)
        self.clock.resume()

    def _awaits(self, step_seconds: float) -> bool:
        """Whether a block goes on: an epoch is about to end, or an instrument has not seen what it waits for."""
        if any(holds() for holds in self._hooks.holds_block):
            return True
        observed = self.assignment.instrument(Observe)
        limit = observed.epoch_end_seconds if observed is not None else 0.0
        if place_in_group(self._torch)[1] > 1:  # each rank would decide by its own clock, and wait for the others
            return False
        return limit > 0 and self._observer.awaits_epoch_end(limit, step_seconds)

    def _close_block(self) -> None:
        self.clock.synchronise()
        block = self._block
        assert block is not None
        self._block = None
        ended = block.end()
        self.clock.drain()
        wait_until_forgotten(self._torch)
        steps = self.clock.steps()
        first, last = block.first_step, self.clock.steps_done
        outside = sum(steps.outside_seconds[first:last])
        self._channel.send(
            BlockDone(
                steps_done=last,
                block=Block(
                    first_step=first,
                    steps=last - first,
                    samples=sum(steps.samples[first:last]),
                    wall_seconds=max(ended.wall_seconds - outside, 1e-9),
                    outside_seconds=outside,
                    own_cpu_seconds=ended.cpu_seconds,
                    involuntary_switches=ended.involuntary_switches,
                    page_faults=ended.page_faults,
                    allocator_retries=allocator_retries(self._torch) - self._retries_before,
                    device_peak_bytes=None if self._wanted.configuration is None else self._peaks.of_block(),
                ),
            )
        )

    # -- endings -------------------------------------------------------------------------------

    def _leave(self) -> None:
        """End the process here and now: a polite exception could be swallowed by the script."""
        self._send_report(exit_code=None)
        flush()
        os._exit(0)

    def finish_early(self, **found: Any) -> None:
        """Report without having trained on (the loader sweep) and end the process."""
        self._send_report(exit_code=None, **found)
        flush()
        os._exit(0)

    def _script_ended(self) -> None:
        if os.getpid() == self._process and (self._hello_sent or self.clock.backwards):
            self._send_report(exit_code=0)

    def _script_exits(self, status: int) -> NoReturn:
        """``os._exit`` runs nothing at exit: a script that ends by it on purpose would leave without a report."""
        try:
            if status == 0 and self._hello_sent and os.getpid() == self._process:
                self._send_report(exit_code=0)
        finally:
            self._exit(status)

    def _forked(self) -> None:
        """A forked child starts again: if it trains, it sends its own reports."""
        self._process = os.getpid()
        self._channel = Channel(self._address)
        self._arrived = self._hello_sent = False
        self._block = None
        self._lead_in = 0
        self._counter = None  # it is shared with the parent

    def _facts(self) -> ScriptFacts:
        """What was observed of the script; its own objects are read, and no exception of theirs may end the run."""
        try:
            return self._observer.facts()
        except _ANSWERS_OF_OBJECTS as error:
            self._hooks.note(f"What the script consists of could not be found out: {type(error).__name__}: {error}")
            return ScriptFacts(torch_version=str(self._torch.__version__))

    def _send_report(self, exit_code: int | None, **found: Any) -> None:
        if self._reported:
            return
        self._reported = True
        self.clock.synchronise()
        self.clock.drain()
        for tell in self._hooks.before_exit:
            tell()
        steps = self.clock.steps()
        evidence_path = self._evidence.write(steps) if self._evidence is not None else ""
        if exit_code is None:  # a script that ended by itself is being torn down
            for tell in self._hooks.after_last_step:
                tell()
        run = Run(
            plan=self.assignment.plan,
            seed=self.assignment.seed,
            facts=self._facts(),
            steps=steps,
            invariants=self._invariants.result(steps),
            outside_seconds=sum(steps.outside_seconds),
            device_peak_bytes=self._peaks.allocated_bytes,
            device_footprint_bytes=self._peaks.footprint_bytes,
            compile=compile_report.collect(self._torch, self._roots.forward()),
            scaler_skipped_steps=self._hooks.scaler_skipped_steps,
            notes=tuple(self._hooks.notes),
            files=self._redirection.files() if self._redirection is not None else (),
            hosts=connections.hosts(),
            gradients_path=self._invariants.gradients_path,
            outputs_path=self._hooks.outputs_path,
            evidence_path=evidence_path,
            imported_from_original=imported_from_original(self.assignment.workload.checkout),
            **{**self._hooks.found, **found},
        )
        self._channel.send(Report(run=run, exit_code=exit_code))


class _OpenBlock:
    """A block that is running: its goal, and the clocks at its beginning. One whose time is over goes on, up to its
    last step, for as long as ``held`` says so, and beyond it while ``awaits`` does, which is given the seconds of a
    step."""

    def __init__(
        self, wanted: Proceed, first_step: int, held: Callable[[], bool] | None, awaits: Callable[[float], bool]
    ) -> None:
        self.first_step = first_step
        self.last_step = first_step + wanted.steps
        self._held = held
        self._awaits = awaits
        least_steps = wanted.steps if wanted.seconds is None else min(wanted.steps, wanted.minimum_steps)
        self._least_step = first_step + least_steps
        # Before this step there is no need to ask whether it is complete.
        self.asked_from = self._least_step if wanted.most_seconds is None else first_step + 1
        self._limit_seconds = wanted.seconds
        self._most_seconds = wanted.most_seconds
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._began = time.perf_counter()

    def complete(self, steps_done: int) -> bool:
        if self._most_seconds is not None and time.perf_counter() - self._began >= self._most_seconds:
            return True
        if steps_done < self.last_step:
            if self._limit_seconds is None or steps_done < self._least_step or not self.time_is_over():
                return False
            if self._held is not None and self._held():
                return False
        return not self._awaits((time.perf_counter() - self._began) / (steps_done - self.first_step))

    def time_is_over(self) -> bool:
        """Whether the seconds are up that were given for the block, if any were."""
        return self._limit_seconds is not None and time.perf_counter() - self._began >= self._limit_seconds

    def end(self) -> _Ended:
        wall_seconds = time.perf_counter() - self._began
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return _Ended(
            wall_seconds=wall_seconds,
            cpu_seconds=usage.ru_utime + usage.ru_stime - self._usage.ru_utime - self._usage.ru_stime,
            involuntary_switches=usage.ru_nivcsw - self._usage.ru_nivcsw,
            page_faults=usage.ru_minflt - self._usage.ru_minflt,
        )


class _Ended:
    __slots__ = ("cpu_seconds", "involuntary_switches", "page_faults", "wall_seconds")

    def __init__(self, wall_seconds: float, cpu_seconds: float, involuntary_switches: int, page_faults: int) -> None:
        self.wall_seconds = wall_seconds
        self.cpu_seconds = cpu_seconds
        self.involuntary_switches = involuntary_switches
        self.page_faults = page_faults
