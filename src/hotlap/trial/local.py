"""The executor that starts real children on this machine."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType

import msgspec

from hotlap.records import (
    BUILT_ENGINES,
    KEPT_STEPS,
    Assignment,
    CollectiveRates,
    CollectivesRequest,
    FileWrite,
    Isolation,
    KeepSteps,
    LaunchRequest,
    Machine,
    Observe,
    Proceed,
    Replicate,
    RestoreSteps,
    Run,
    SweepLoader,
    TurnRequest,
    Workload,
)
from hotlap.trial import command, turns
from hotlap.trial.child import Child
from hotlap.trial.collectives import measured_collectives
from hotlap.trial.endings import may_lack_room
from hotlap.trial.executor import OneSlot
from hotlap.trial.freezing import DeviceFreezer, TreeFreezer
from hotlap.trial.handshake import shake_hands
from hotlap.trial.isolating import Isolator
from hotlap.trial.kept_code import KeptCode
from hotlap.trial.load import device_of
from hotlap.trial.machine import measured_machine
from hotlap.trial.one_launch import shared_assignment, switch_turns
from hotlap.trial.others import wait_for_quiet
from hotlap.trial.owned_folder import owned_folder
from hotlap.trial.snapshot import changed, snapshot
from hotlap.trial.suspension import Suspender
from hotlap.trial.teardown import Teardown

_NOTHING: Mapping[str, str] = MappingProxyType({})
_DEFAULT_ISOLATION = Isolation()
_SWEEP = "loader sweep"
_AFTER_STEPS_SECONDS = 30.0
"""The most for a setting of the loader that is timed after steps."""


class LocalExecutor(OneSlot):
    """Starts children whose files go to numbered folders below ``directory``; ``environment`` is added to theirs.

    Whatever ends a method, KeyboardInterrupt too, no process that it started is left. Children end also when this
    process is killed. ``hooks_directory`` holds the ``sitecustomize`` that boots hotlap in the child.

    All methods raise :class:`hotlap.errors.ScriptError` for a script that cannot be started at all, and
    :class:`hotlap.errors.StudyError` when ``directory`` cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        *,
        environment: Mapping[str, str] = _NOTHING,
        isolation: Isolation = _DEFAULT_ISOLATION,
        hooks_directory: Path = command.HOOKS_DIRECTORY,
    ) -> None:
        self._directory = directory.resolve()
        self._environment = dict(environment)
        self._hooks_directory = hooks_directory.resolve()
        self._isolator = Isolator(isolation, self._directory, self._environment)
        self._greeted: set[str] = set()
        self._stack = ExitStack()
        weakref.finalize(self, self._stack.close)
        self._too_many_launches = math.inf
        self._teardown = Teardown(device_of(self._environment))

    def machine(self) -> Machine:
        """Facts about this machine and the rates it reaches, measured once. A rate that could not be measured is
        missing, and a warning says why."""
        return self._machine

    @cached_property
    def _machine(self) -> Machine:
        protection = self._isolator.protection  # which may refuse, before anything is measured
        return msgspec.structs.replace(measured_machine(), protection=protection)

    def collectives(self, request: CollectivesRequest) -> CollectiveRates:
        """Collectives between processes of our own, which end with us."""
        return measured_collectives(request.processes, request.device, parts=request.parts)

    def launch(self, request: LaunchRequest) -> Run:
        """One child alone, until the wanted steps are done, its time is over, or it ends by itself.

        With one process all steps after the first are one block; with several, whose blocks must not be ended by
        time, there are several blocks where ``seconds`` are given. ``block_limit_seconds`` holds for a block, so a
        request for many slow steps needs a higher one.

        A run that observes also names the files of the working directory that changed behind the redirection's back,
        written by a program that the script started, say.
        """
        if request.assignment.instrument(Observe) is None or self._isolator.protection.mode == "namespaces":
            return self._launch(request)
        directory = Path(request.assignment.workload.directory)
        before = snapshot(directory)
        run = self._launch(request)
        return self._with_changes(run, changed(before, snapshot(directory)))

    def _with_changes(self, run: Run, paths: Sequence[str]) -> Run:
        known = {it.path for it in run.files if not it.redirected}
        own = str(self._directory) + os.sep
        unseen = [it for it in paths if it not in known and not it.startswith(own)]
        files = (*run.files, *(FileWrite(path=it, redirected=False) for it in unseen))
        return msgspec.structs.replace(run, files=files)

    def _launch(self, request: LaunchRequest) -> Run:
        wait_for_quiet(request.patience_seconds)
        began = time.perf_counter()
        with self._child_alone(request.assignment, loads_code=request.loads_code) as child:
            sweep = request.assignment.instrument(SweepLoader)
            limit = min(_sweep_limit_seconds(request.assignment), request.most_seconds or math.inf)
            if sweep is not None and not sweep.after_steps:
                child.wait_over(limit, _SWEEP)
            elif child.wait_ready():
                _run_steps(child, request, time.perf_counter() - began)
                if sweep is not None:
                    child.wait_over(limit, _SWEEP, told=True)
            return child.finish()

    def launch_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        """Run children that start in parallel and are frozen until it is their turn to take their steps. One that fails
        while others are alive is launched again alone: memory may not have been enough for all."""
        if len(requests) < 2:
            return super().launch_together(requests)
        began = time.perf_counter()
        runs: list[Run] = []
        self._teardown.wait()
        with ExitStack() as stack:
            children = [
                stack.enter_context(self._child(_waiting(it.assignment), loads_code=it.loads_code)) for it in requests
            ]
            turns.start_together(children)
            for child, request in zip(children, requests, strict=True):
                if not child.over:
                    _run_steps(child, request, time.perf_counter() - began)
                runs.append(child.finish())
        return tuple(
            self._launch(request) if may_lack_room(run.ending) else run
            for request, run in zip(requests, runs, strict=True)
        )

    def take_turns(self, request: TurnRequest) -> Replicate:
        """A fresh launch of every arm, taking turns block by block; see :mod:`hotlap.trial.turns`.

        With ``request.one_launch`` they are configurations of one process (:mod:`hotlap.trial.one_launch`). With
        ``request.suspended`` arms leave the device while they wait. Where they did not fit into memory together
        or could not be suspended, and also where ``request.interleaved`` is false, whole launches are alternated.
        """
        wait_for_quiet(request.patience_seconds)
        began = time.perf_counter()
        if request.one_launch:
            with self._child_alone(shared_assignment(request), loads_code=True) as child:
                runs, rounds = switch_turns(child, request)
            return Replicate(runs=runs, rounds=rounds, wall_seconds=time.perf_counter() - began)
        suspender = Suspender.found() if request.suspended else None
        interleaved = request.interleaved and (suspender is not None or not request.suspended)
        if interleaved:
            runs, rounds, suspended = self._interleave(request, suspender)
            crowded = any(may_lack_room(run.ending) for run in runs) or turns.is_cramped(runs, request)
            interleaved = len(runs) < 2 or (suspended and not crowded)
        if not interleaved:
            start = partial(self._child_alone, loads_code=not request.compiles_all)
            runs, rounds = turns.alternate(start, request)
        return Replicate(runs=runs, rounds=rounds, interleaved=interleaved, wall_seconds=time.perf_counter() - began)

    def take_replicates(self, requests: Sequence[TurnRequest]) -> tuple[Replicate, ...]:
        """The same of several requests, whose arms all start at the same time and are frozen until their replicate
        begins. Where they do not fit into memory together, one replicate starts after the other, and so do as many
        launches from then on."""
        launches = sum(len(it.arms) for it in requests)
        can_wait = all(it.interleaved and not it.suspended and not it.one_launch for it in requests)
        if len(requests) < 2 or not can_wait or launches >= self._too_many_launches:
            return super().take_replicates(requests)
        taken = self._take_started_together(requests)
        lacks_room = any(may_lack_room(run.ending) for it in taken for run in it.runs)
        is_cramped = any(turns.is_cramped(it.runs, request) for it, request in zip(taken, requests, strict=True))
        if not (lacks_room or is_cramped):
            return taken
        self._too_many_launches = launches
        return super().take_replicates(requests)

    def _take_started_together(self, requests: Sequence[TurnRequest]) -> tuple[Replicate, ...]:
        """Replicates whose seconds each include the common start: what each would take by itself."""
        taken: list[Replicate] = []
        self._teardown.wait()
        began = time.perf_counter()
        deadline = min(map(turns.deadline_of, requests))
        with ExitStack() as stack:
            sets = [
                [stack.enter_context(self._child(_waiting(arm), loads_code=not it.compiles_all)) for arm in it.arms]
                for it in requests
            ]
            turns.start_together([child for children in sets for child in children], deadline)
            start_seconds = time.perf_counter() - began
            for request, children in zip(requests, sets, strict=True):
                replicate_began = time.perf_counter()
                runs, rounds = turns.take_turns(children, _shortened(request, replicate_began - began))
                wall_seconds = start_seconds + time.perf_counter() - replicate_began
                taken.append(Replicate(runs=runs, rounds=rounds, wall_seconds=wall_seconds))
        return tuple(taken)

    def _interleave(
        self, request: TurnRequest, suspender: Suspender | None
    ) -> tuple[tuple[Run, ...], turns.Rounds, bool]:
        """The runs, their rounds, and whether no arm failed to leave the device."""
        side_by_side = len(request.arms) > 1 and suspender is None
        arms = [msgspec.structs.replace(it, waits_on_device=side_by_side) for it in request.arms]
        children: list[Child] = []
        self._teardown.wait()
        with ExitStack() as stack:
            for assignment in arms:
                child = self._child(assignment, suspender, loads_code=not request.compiles_all)
                children.append(stack.enter_context(child))
                if suspender is not None and children[-1].wait_ready():
                    children[-1].freeze()
            runs, rounds = turns.take_turns(children, request)
        return runs, rounds, not any(it.not_suspended for it in children)

    def _child_alone(self, assignment: Assignment, *, loads_code: bool = False) -> Child:
        """What torch's compiler makes in it is kept."""
        self._teardown.wait()
        child = self._child(assignment, loads_code=loads_code)
        child.keeps_code = self._kept_code
        return child

    def _child(self, assignment: Assignment, suspender: Suspender | None = None, *, loads_code: bool = False) -> Child:
        command.check(assignment.workload)
        environment = command.environment_of(assignment, self._environment, self._hooks_directory)
        if self._hooked:
            self._greet(assignment.workload, environment)
        if assignment.workload.kind == "inference":
            environment[BUILT_ENGINES] = self._built_engines
        if assignment.instrument(KeepSteps) is not None or assignment.instrument(RestoreSteps) is not None:
            environment[KEPT_STEPS] = self._kept_steps
        run_directory = command.new_run_directory(self._directory)
        isolator, hooked = self._isolator, self._hooked
        freezer = DeviceFreezer(suspender) if suspender is not None else TreeFreezer()
        child = Child(assignment, run_directory, environment, isolator, hooked=hooked, freezer=freezer)
        if loads_code:
            self._kept_code.give(child.code_folder)
        return child

    @cached_property
    def _kept_code(self) -> KeptCode:
        return KeptCode(self._stack.enter_context(owned_folder("hotlap-code-")) / "code")

    @cached_property
    def _kept_steps(self) -> str:
        """A folder next to the runs, as long as this executor lives: what is kept there may be too much for memory, in
        which temporary folders may be."""
        self._directory.mkdir(parents=True, exist_ok=True)
        steps = os.path.realpath(self._stack.enter_context(owned_folder("hotlap-steps-", self._directory)))
        self._isolator.shared_by_runs = (*self._isolator.shared_by_runs, steps)
        return steps

    @cached_property
    def _built_engines(self) -> str:
        """A temporary folder, as long as this executor lives, in which launches find what an engine built before."""
        engines = os.path.realpath(self._stack.enter_context(owned_folder("hotlap-engines-")))
        self._isolator.shared_by_runs = (*self._isolator.shared_by_runs, engines)
        return engines

    @property
    def _hooked(self) -> bool:
        return self._hooks_directory == command.HOOKS_DIRECTORY.resolve()

    def _greet(self, workload: Workload, environment: Mapping[str, str]) -> None:
        """Before the first launch with an interpreter: see that hotlap is loaded by it, isolated as a trial is.

        Raises :class:`hotlap.errors.ScriptError` where it is not.
        """
        if workload.python in self._greeted:
            return
        with owned_folder("hotlap-handshake-") as folder:

            def start(words: Sequence[str], added: Mapping[str, str]) -> tuple[int | None, str]:
                return self._isolator.run_briefly(words, workload.directory, {**environment, **added}, folder)

            shake_hands(start, workload.python, folder)
        self._greeted.add(workload.python)


def _waiting(assignment: Assignment) -> Assignment:
    """A child that takes its first step on an accelerator only when no other does."""
    return msgspec.structs.replace(assignment, waits_on_device=True)


def _shortened(request: TurnRequest, spent_seconds: float) -> TurnRequest:
    """The request with the time that is left of its ``most_seconds``."""
    most = request.most_seconds
    return request if most is None else msgspec.structs.replace(request, most_seconds=max(0.0, most - spent_seconds))


def _sweep_limit_seconds(assignment: Assignment) -> float:
    """A sweep sends nothing until it is done: it may take as long as a block for each setting. After steps the rest of
    the launch would be lost with it, so it is given up sooner, and repeated by itself."""
    sweep = assignment.instrument(SweepLoader)
    settings = len(sweep.settings) if sweep is not None else 0
    each = assignment.block_limit_seconds
    if sweep is not None and sweep.after_steps:
        each = min(each, _AFTER_STEPS_SECONDS)
    return assignment.startup_limit_seconds + each * settings


def _run_steps(child: Child, request: LaunchRequest, spent_seconds: float) -> None:
    """Have the steps done that remain after the first, which itself was done after ``spent_seconds``."""
    remaining, least = request.steps - 1, max(1, request.minimum_steps - 1)
    if remaining <= 0:
        return
    most = None if request.most_seconds is None else max(0.0, request.most_seconds - spent_seconds)
    if child.processes == 1:
        order = Proceed(steps=remaining, seconds=request.seconds, minimum_steps=least, most_seconds=most)
        child.run_block(order, sample_memory=True)
    elif request.seconds is None and most is None:
        child.run_block(Proceed(steps=remaining), sample_memory=True)
    else:
        seconds = math.inf if request.seconds is None else request.seconds
        _run_steps_together(child, remaining, least, seconds, math.inf if most is None else most)


def _run_steps_together(child: Child, remaining: int, least: int, seconds: float, most_seconds: float) -> None:
    """The same with several processes, which must agree on where to end: blocks of a number of steps, each twice as
    long as what was done before it, as far as the time seems to allow."""
    began = time.perf_counter()
    done = 0
    while done < remaining:
        elapsed = time.perf_counter() - began
        if (done >= least and elapsed >= seconds) or (done and elapsed >= most_seconds):
            return
        affordable = _affordable_steps(done, elapsed, min(seconds, most_seconds), remaining)
        wanted = max(affordable, least - done) if most_seconds == math.inf else affordable
        steps = min(max(1, wanted), remaining - done)
        if child.run_block(Proceed(steps=steps), sample_memory=True) is None:
            return
        done += steps


def _affordable_steps(done: int, elapsed_seconds: float, seconds: float, most: int) -> int:
    """How many more steps the time seems to allow: at most twice as many as were done."""
    if not done:
        return 0
    if seconds == math.inf:
        return most
    return min(int(done * (seconds - elapsed_seconds) / elapsed_seconds), 2 * done)
