"""One launch of the user's script, from its start to its end, seen from outside.

A child is in one of these states: not started, starting, ready (its trainers wait), working on a block, over. It may be
frozen while it is ready. It is a context manager: on exit all of its processes and temporary files are gone.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import psutil

from hotlap.errors import StudyError
from hotlap.records import (
    STEP_PHASES,
    Assignment,
    Block,
    Contact,
    FileWrite,
    GuardMemory,
    Proceed,
    Run,
    Steps,
    TimedOut,
)
from hotlap.redact import redacted_assignment
from hotlap.trial import tree
from hotlap.trial.channel import Channel
from hotlap.trial.command import command_of, start_failure, unwritable
from hotlap.trial.connections import merged_hosts, remote_peers
from hotlap.trial.denials import denied_path
from hotlap.trial.endings import Departure, ending_of, kernel_memory_kills
from hotlap.trial.foreign_processes import boot_failures, described, torch_without_hotlap
from hotlap.trial.freezing import Freezer, TreeFreezer
from hotlap.trial.isolating import Isolator, code_folder
from hotlap.trial.kept_code import KeptCode
from hotlap.trial.load import BlockWatch, CoresWatch, device_of
from hotlap.trial.memory_guard import MemoryGuard
from hotlap.trial.output import Follower, read_tail, trim
from hotlap.trial.process import OwnedProcess
from hotlap.trial.progress import WHILE_STOPPED, Stall, StepCounters, stopped
from hotlap.trial.room import Room, read_only_sentence, written_names
from hotlap.trial.suspension import SuspensionFailedError
from hotlap.trial.sweeping import sweep_run
from hotlap.trial.trainers import Trainers
from hotlap.trial.transport import transport_at

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_MOST_PEERS = 300
_TICK_SECONDS = 0.1
_LOOK_SECONDS = 1.0
"""How often memory and the size of the output are checked while waiting."""
_REPORT_LIMIT_SECONDS = 60.0
"""How long a trainer may take for its report once it was told to end."""
_OTHERS_LIMIT_SECONDS = 10.0
"""How long the others may continue after one trainer has ended by itself."""
_OWN_EXIT_LIMIT_SECONDS = 30.0
_REQUESTED_EXIT_LIMIT_SECONDS = 5.0
"""How long the process may take to exit after the last trainer's last message: by itself, and when told to end."""
_LAST_WORDS_SECONDS = 0.5
"""How long we listen on after the process has exited."""


class Child:
    """A child for ``assignment``, whose files go to ``run_directory`` and whose variables are ``environment``, isolated
    as the ``isolator`` says. ``hooked``: hotlap's own runtime is to be in every process that has torch. The
    ``freezer`` (by default one that sends signals) is its own; ``not_suspended`` says why device memory stayed.

    ``blocks`` are the blocks timed so far, of which the first ``warm_up_blocks`` were warm-up; that number and the
    ``notes`` are set by the caller that decides on blocks. ``keeps_code`` is where the code goes that torch's compiler
    made in it, if it ends well.
    """

    def __init__(
        self,
        assignment: Assignment,
        run_directory: Path,
        environment: dict[str, str],
        isolator: Isolator,
        *,
        hooked: bool = True,
        freezer: Freezer | None = None,
    ) -> None:
        self.assignment = assignment
        self.run_directory = run_directory
        self.output_path = run_directory / "output.txt"
        self.blocks: list[Block] = []
        self.warm_up_blocks = 0
        self.notes: list[str] = []
        self.not_suspended = ""
        self.keeps_code: KeptCode | None = None
        self._environment = environment
        self._isolator = isolator
        self._hooked = hooked
        self._freezer: Freezer = freezer if freezer is not None else TreeFreezer()
        self._process = OwnedProcess()
        self._layers = isolator.layers_of(run_directory, self._process.folder)
        self._room = Room(self._layers) if self._layers is not None else None
        self._trouble = ""
        self._channel = Channel(transport_at(self._process.folder / "socket"))
        self._trainers = Trainers(self._channel)
        self._device = device_of(environment)
        self._counters = StepCounters(run_directory)
        self._follower: Follower | None = None
        self._kernel_kills = kernel_memory_kills()
        guard = assignment.instrument(GuardMemory)
        self._memory_guard = MemoryGuard(guard.headroom) if guard is not None else None
        self._began = self._ended = 0.0
        self._frozen_at: float | None = None
        self._frozen_seconds = self._longest_pause_seconds = 0.0
        self._arrived_at: float | None = None
        self._waited_seconds = 0.0
        self._host_peak_bytes = 0
        self._cores: CoresWatch | None = None
        self._alone: Block | None = None
        self._last_look = 0.0
        self._steps_done = 0
        self._end_requested = False
        self._over = False
        self._timed_out: TimedOut | None = None
        self._written: tuple[FileWrite, ...] = ()
        self._peers: frozenset[Contact] = frozenset()

    @property
    def code_folder(self) -> Path:
        """Where torch's compiler stores its code."""
        return code_folder(self._process.folder)

    # -- its life ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:  # raised again; whatever happened, no process stays behind
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        sweep_run(self.run_directory)  # in case it was not finished

    def _start(self) -> None:
        assignment_path = self.run_directory / "assignment.json"
        try:
            assignment_path.write_bytes(msgspec.json.encode(redacted_assignment(self.assignment)))
        except OSError as error:
            raise StudyError(
                f"{assignment_path} cannot be written: {error.strerror or error}.", remedy="Free some space there."
            ) from error
        if self.assignment.show_output:
            self._follower = Follower(self.output_path)
        own = {
            "HOTLAP_ASSIGNMENT": str(assignment_path),
            "HOTLAP_SOCKET": str(self._process.folder / "socket"),
            "HOTLAP_RUN_DIRECTORY": str(self.run_directory),
            **self._isolator.variables(self._process.folder),
        }
        workload = self.assignment.workload
        command = command_of(workload)
        self._began = time.perf_counter()
        try:
            self._process.start(
                command,
                directory=workload.directory,
                environment={**self._environment, **own},
                output=self.output_path,
                order=self._isolator.order(command, workload.directory, self.run_directory, self._process.folder),
            )
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise unwritable(self.run_directory, error) from error
            raise start_failure(workload, error) from error
        if self._memory_guard is not None:
            self._memory_guard.start(self._process.root)

    def kill(self) -> int | None:
        """End every process of the child at once; its exit status, or None. May be called again."""
        self._over = True
        if self._memory_guard is not None:
            self._memory_guard.stop()
        status = self._process.kill()
        # What the script wrote was kept from the user's files and is of no more use; checkpoints of hundreds of
        # launches would fill the disk. Their names are in the report.
        sweep_run(self.run_directory)
        self._channel.close()
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        return status

    def freeze(self) -> None:
        """Freeze the whole process tree."""
        if self._frozen_at is None and not self._over:
            try:
                self._frozen_at = self._freezer.freeze(self._process.root)
            except SuspensionFailedError as error:
                self._frozen_at = time.perf_counter()
                self._lose_device(error)

    def thaw(self) -> None:
        """Thaw a frozen tree."""
        if self._frozen_at is not None:
            try:
                self._freezer.thaw(over=self._over)
            except SuspensionFailedError as error:
                self._lose_device(error)
            seconds = time.perf_counter() - self._frozen_at
            self._frozen_seconds += seconds
            self._longest_pause_seconds = max(self._longest_pause_seconds, seconds)
            self._frozen_at = None

    def _lose_device(self, error: SuspensionFailedError) -> None:
        """The contents of its device memory are no longer reliable."""
        self.not_suspended = str(error)
        self._trouble = self._trouble or f"its device memory could not be moved: {error}"
        self._over = True

    # -- waiting -------------------------------------------------------------------------------

    @property
    def processes(self) -> int:
        """How many processes train together."""
        return max(1, self._trainers.size)

    @property
    def over(self) -> bool:
        """Whether it can do no further step."""
        return self._over

    def starting(self, timeout_seconds: float = _TICK_SECONDS) -> bool:
        """Poll the start-up for a short time; True as long as the child is neither ready nor over."""
        self._attend(timeout_seconds, sample_memory=True)
        if self._over or self._trainers.complete:
            return False
        if self.waits_on_device and self._arrived_at is None:
            self._arrived_at = time.perf_counter()
        limit = self.assignment.startup_limit_seconds
        if self._arrived_at is None and time.perf_counter() - self._began - self._waited_seconds > limit:
            self._give_up("startup", limit)
        return not self._over

    @property
    def waits_on_device(self) -> bool:
        """Whether it waits for permission to take its first step. That time does not count towards its limit."""
        return self._trainers.waits_on_device

    def let_go_on(self) -> None:
        """Let all its processes that wait take their first step."""
        if self._arrived_at is not None:
            self._waited_seconds += time.perf_counter() - self._arrived_at
            self._arrived_at = None
        self._trainers.let_go_on()

    def wait_ready(self) -> bool:
        """Wait until every trainer has done its first step; False when the child is over instead."""
        while self.starting():
            pass
        return not self._over

    def wait_over(self, limit_seconds: float, during: str, *, told: bool = False) -> None:
        """Wait until the script has ended by itself, or because it is ``told`` to, or give up on it. The load by others
        meanwhile is recorded as one block without steps."""
        if told and not self._over:
            self._tell_to_end()
        self._cores = CoresWatch(tree.members(self._process.root))
        self._wait(lambda: False, limit_seconds, during, sample_memory=True)
        self.blocks += [it for it in (self._alone,) if it is not None]

    @property
    def steps_done(self) -> int:
        """As the last block reported."""
        return self._steps_done

    def run_block(self, order: Proceed, *, sample_memory: bool = False) -> Block | None:
        """Run one block in a child that is ready, thawing it first.

        None when the child is over instead: it ended, failed, or was given up as the block took longer than the
        assignment's limit (to which ``order.seconds`` are added), or one step longer than its ``step_limit_seconds``.
        With ``sample_memory`` its memory is sampled meanwhile, which slows it down a little; otherwise only after the
        block.
        """
        # A frozen tree cannot have changed: listing the processes again would only cost time.
        processes = self._freezer.processes if self._frozen_at is not None else tree.members(self._process.root)
        self.thaw()
        if self._over:
            return None
        limit = self.assignment.block_limit_seconds + (order.seconds or 0.0)
        watch = BlockWatch(processes, self._device, trainers=self.processes)
        stall = Stall(self._counters, self.assignment.step_limit_seconds)
        self._trainers.order(order)
        over = lambda: self._trainers.answered or stall.noticed()  # noqa: E731
        if not self._wait(over, limit, "block", sample_memory=sample_memory, watch=watch):
            return None
        if not self._trainers.answered:
            self._give_up("block", stall.limit_seconds)
            return None
        watch.stop()
        block, self._steps_done = self._trainers.block()
        processes = tree.members(self._process.root)
        self.blocks.append(watch.complete(block, processes))
        self._look(processes)
        return self.blocks[-1]

    def _wait(
        self,
        reached: Callable[[], bool],
        limit_seconds: float,
        during: str,
        *,
        sample_memory: bool,
        watch: BlockWatch | None = None,
    ) -> bool:
        """Poll the child until ``reached``; False when it is over instead, or has been given up."""
        deadline = time.perf_counter() + limit_seconds
        while not reached():
            if not self._over and time.perf_counter() > deadline:
                self._give_up(during, limit_seconds)
            if self._over:
                return False
            heard = self._attend(_TICK_SECONDS, sample_memory=sample_memory)
            if watch is not None and not heard:
                watch.look()
        return True

    def _attend(self, timeout_seconds: float, *, sample_memory: bool) -> bool:
        """Read the child's messages within that time, and notice when it is over. False when none came."""
        heard = self._channel.poll(timeout_seconds)
        self._trainers.attend()
        self._trouble = self._trouble or self._trainers.trouble
        if self._trouble:
            self._over = True
        elif self._trainers.breaking_up or self._process.exited():
            self._read_last_messages()
        elif not heard and time.perf_counter() - self._last_look > _LOOK_SECONDS:
            self._look(tree.members(self._process.root) if sample_memory else ())
        return heard

    def _read_last_messages(self) -> None:
        """Read the last messages of a child that is ending, so that the reports of all trainers arrive."""
        told = self._end_requested
        until = time.perf_counter() + (_REPORT_LIMIT_SECONDS if told else _OTHERS_LIMIT_SECONDS)
        exit_limit = _REQUESTED_EXIT_LIMIT_SECONDS if told else _OWN_EXIT_LIMIT_SECONDS
        exited = gone = False
        while time.perf_counter() < until:
            if self._trainers.gone and not gone:
                gone, until = True, time.perf_counter() + exit_limit
            if self._process.exited() and not exited:
                exited, until = True, min(until, time.perf_counter() + _LAST_WORDS_SECONDS)
            heard = self._channel.poll(_TICK_SECONDS / 4)
            self._trainers.attend()
            if gone and (exited or told) and not heard and not self._channel.open:
                break
        self._over = True

    def _look(self, processes: Sequence[psutil.Process]) -> None:
        """Record the memory that these processes hold, and keep the output within bounds."""
        self._last_look = time.perf_counter()
        if self._cores is not None and processes:
            self._alone = self._cores.block_until_now(processes)
        self._host_peak_bytes = max(self._host_peak_bytes, tree.memory_bytes(processes))
        if len(self._peers) < _MOST_PEERS:
            self._peers |= remote_peers(processes)
        trim(self.output_path)
        foreign = torch_without_hotlap(processes, self.run_directory) if self._hooked else []
        if foreign:
            self._trouble = self._trouble or described(foreign)
        if self._room is not None:
            self._trouble = self._trouble or self._room.trouble()

    def _give_up(self, during: str, limit_seconds: float) -> None:
        if self._frozen_at is None and stopped(tree.members(self._process.root)):
            during += WHILE_STOPPED
        self._timed_out = TimedOut(limit_seconds=limit_seconds, during=during)
        self._over = True

    # -- its end -------------------------------------------------------------------------------

    def finish(self) -> Run:
        """End the child, gracefully where it can still answer, and return its run. Nothing of it is left then."""
        self.thaw()
        if not self._over:
            self._tell_to_end()
            if self._trainers.size > 0:
                self._wait(lambda: False, _REPORT_LIMIT_SECONDS, "report", sample_memory=False)
        self._ended = time.perf_counter()
        exited = self._process.exited()
        left_running = exited and not self._end_requested and self._process.left_running()
        status = self._process.end()
        if self._layers is not None:
            self._written = written_names(self._layers, self.assignment.workload.directory)
            self.notes += [it for it in (read_only_sentence(self._layers),) if it]
        trim(self.output_path)
        output = read_tail(self.output_path)
        denied = self._denied(output)
        if self.keeps_code is not None and self._timed_out is None and (self._end_requested or (exited and not status)):
            self.keeps_code.keep(self.code_folder)
        self.kill()
        return self._run(
            Departure(
                exit_status=status if exited else None,
                reports=self._trainers.reports,
                trainers=self._trainers.size,
                end_requested=self._end_requested,
                timed_out=self._timed_out,
                kernel_kills=max(0, kernel_memory_kills() - self._kernel_kills),
                steps_done=max(self._steps_done, int(self._trainers.size > 0), self._counters.most()),
                output=output,
                denied_path=denied,
                left_running=left_running,
                trouble=self._what_went_wrong(),
                memory_guarded=self._memory_guard.reason if self._memory_guard is not None else "",
            )
        )

    def _tell_to_end(self) -> None:
        self._end_requested = True
        if self._trainers.size > 0:
            self._trainers.end()

    def _denied(self, output: str) -> str:
        """The write that the isolation denied, read from the end of its output while its files still exist."""
        mode = self._isolator.protection.mode
        redirected = self.run_directory / "files" / "tree"  # the layout of runtime/view.py
        return denied_path(output, mode, self.assignment.workload.directory, str(redirected))

    def _what_went_wrong(self) -> str:
        """A cause outside of the script: hotlap ended it, or could not start in one of its processes."""
        if self._trouble:
            return f"hotlap ended the process since {self._trouble}."
        return next(iter(boot_failures(self.run_directory)), "")

    def _run(self, departure: Departure) -> Run:
        """The lowest rank's report, with what only the controller knows, and what the other ranks add."""
        seen = [report.run for report in departure.reports]
        together = seen if len(seen) > 1 else []
        hello_at = self._trainers.hello_at
        return msgspec.structs.replace(
            seen[0] if seen else Run(),
            plan=self.assignment.plan,
            seed=self.assignment.seed,
            ending=ending_of(departure),
            blocks=tuple(self.blocks),
            warm_up_blocks=self.warm_up_blocks,
            startup_seconds=hello_at - self._began if hello_at is not None else 0.0,
            wall_seconds=self._ended - self._began - self._frozen_seconds,
            longest_pause_seconds=self._longest_pause_seconds,
            host_peak_bytes=self._host_peak_bytes,
            device_peak_bytes=max((run.device_peak_bytes for run in seen), default=0),
            device_footprint_bytes=max((run.device_footprint_bytes for run in seen), default=0),
            notes=_distinct([note for run in seen for note in run.notes] + self.notes),
            files=_distinct([*(file for run in seen for file in run.files), *self._written]),
            hosts=merged_hosts(self.run_directory, self._peers, [host for run in seen for host in run.hosts]),
            output_path=str(self.output_path),
            bad_number=next((run.bad_number for run in seen if run.bad_number is not None), None),
            rank_step_seconds=tuple(run.steps.wall_seconds for run in together),
            rank_forward_seconds=tuple(_until_backward(run.steps) for run in together),
            rank_other_seconds=tuple(run.steps.seconds_in("other") for run in together),
            rank_evidence_paths=tuple(run.evidence_path for run in together if run.evidence_path),
            rank_losses=tuple(run.steps.loss for run in together),
            rank_samples=tuple(run.steps.samples for run in together),
            rank_weights=tuple(map(_weights_of, together)),
            rank_gradients_paths=tuple(run.gradients_path for run in together if run.gradients_path),
        )


def _weights_of(run: Run) -> str:
    """The digests of the weights in all wrappers of a rank; empty where one is missing."""
    digests = [it.weights_digest for it in run.facts.data_parallel]
    return " ".join(digests) if all(digests) else ""


def _until_backward(steps: Steps) -> tuple[float, ...]:
    """Each step's seconds of loading, copying and forward: what a rank does before its gradients are reduced with the
    others'."""
    before = STEP_PHASES[: STEP_PHASES.index("backward")]
    return tuple(sum(row) for row in zip(*(steps.seconds_in(it) for it in before), strict=True))


_Item = TypeVar("_Item")


def _distinct(items: Iterable[_Item]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(items))
