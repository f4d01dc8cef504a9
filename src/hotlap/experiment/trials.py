"""Request launches and replicates of the executor, with their costs and the remaining budget."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.costs import FEWEST_ROUNDS, MOST_ROUNDS, USUAL_ROUNDS, Costs, Shape
from hotlap.experiment.failures import Failure, failure_of
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.repeat import repeated
from hotlap.experiment.room import fitting_on_device
from hotlap.experiment.unmodified import UnmodifiedRuns
from hotlap.measure import speed
from hotlap.measure.disturbance import disturbance
from hotlap.records import (
    Assignment,
    Completed,
    Disturbance,
    Instrument,
    LaunchRequest,
    Machine,
    Measurement,
    Plan,
    Replicate,
    Run,
    StepSource,
    TurnRequest,
    Workload,
)

FEWEST_ARMS = 3
"""Reference, its repeat and one candidate."""

_MOST_ARMS = 6
_MOST_STARTED = 9
"""How many launches start together at most: three replicates of three arms."""
_WORTH_STARTING_TOGETHER_SECONDS = 10.0
"""What each replicate that starts with another must save."""
_MOST_CROWDING = 2.0
"""How much longer than one a crowd may take to start; a start that takes three times as long counts as a hang."""
_CHEAP_SECONDS = 60.0
"""What the starts of one more arm may take in all replicates together."""
_MEMORY_SHARE = 0.8
_SUSPENDED_BLOCK_SECONDS = 2.0
"""Moving an arm to the device and back takes seconds, so blocks are fewer and longer."""
_SHORTEST_LIMIT_SECONDS = 5.0
_STARTUP_SHARE = 0.4
_BLOCK_SHARE = 0.15
_COMPILING_SECONDS = 60.0
"""What a lever that compiles may take to start in a process that switches, if so much is left: many models take more
than half a minute, and one that is cut has cost as much as a whole measurement."""
_SLOWEST_STEP = 100
"""How many times longer than the baseline's a single step of a launch may be: it may be in float64, compile, or be
followed by an evaluation."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What one arm runs: a plan, and a workload and instruments if they differ from the usual ones."""

    plan: Plan = plans_of.EMPTY
    workload: Workload | None = None
    instruments: tuple[Instrument, ...] = ()


class Trials:
    """The only way from procedures to the executor, so that budget, seeds and limits are set in one place.

    ``has_one_process``: a launch is a single trainer. ``most_started`` launches may start together, though no more than
    ``arms_at_once`` take turns. ``suspended``: arms leave the device while they wait. ``reserve_seconds`` is kept for
    verification; no trial may use it. With ``cuts_replicates`` a replicate ends when its time is over, as a
    :class:`Failure` that is ``cut``, which is no failure of an arm. ``cores`` are the usable cores. ``own_plan`` is the
    plan of an assignment without one: empty, except for fewer threads if other processes keep cores busy, and
    ``instruments`` those of an assignment that names none. ``waits_in_vain`` counts the waits after which the machine
    was no quieter, at most ``most_waits``, and ``again_seconds`` is the time of such waits and the measurements after
    them. ``on_repetition`` is called with the number of repetitions so far when a trial is repeated because it was
    killed from outside. ``unmodified`` remembers the last runs of the unmodified script. ``warm_up_steps`` are the
    fewest of a replicate's arm. ``slow_levers`` are those that start slowly; with ``levers_beside_code``
    torch's compiler can load what it made without them.
    """

    def __init__(self, workload: Workload, options: Options, executor: JournaledExecutor) -> None:
        self.workload = workload
        self.options = options
        self.executor = executor
        self.step_source: StepSource = "call" if workload.kind == "inference" else "auto"
        self.costs = Costs(0.0, Shape(step_seconds=1.0))
        self.rounds = options.rounds or USUAL_ROUNDS
        self.arms_at_once = _MOST_ARMS
        self.most_started = 0
        self.interleaved = True
        self.suspended = False
        self.has_one_process = True
        self.reserve_seconds = 0.0
        self.cores = 1
        self.own_plan = plans_of.EMPTY
        self.instruments: tuple[Instrument, ...] = ()
        self.most_waits = 2
        self.waits_in_vain = 0
        self.again_seconds = 0.0
        self.cuts_replicates = False
        self.warm_up_steps = 0
        self.slow_levers: Collection[str] = ()
        self.levers_beside_code: Collection[str] = ()
        self.on_repetition: Callable[[int], object] = lambda count: None
        self.unmodified = UnmodifiedRuns(workload, options.seed)
        self._repetitions = 0
        self._replicates_taken: dict[str, int] = {}

    # -- budget -------------------------------------------------------------------------------

    @property
    def spent_seconds(self) -> float:
        return self.executor.spent_seconds

    @property
    def launches(self) -> int:
        """How many launches of the script were requested so far."""
        return self.executor.launches

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that trials connected to so far."""
        return self.executor.hosts

    @property
    def left_seconds(self) -> float:
        """The remaining budget for trials, without the reserve; infinite without a budget."""
        if self.options.budget_seconds is None:
            return math.inf
        return self.options.budget_seconds - self.spent_seconds - self.reserve_seconds

    def disturbance(self, measured: Measurement, runs: Iterable[Run]) -> Disturbance | None:
        """The disturbance of a measurement with these runs; None if there was none."""
        # The only purpose of an own plan is a core for each thread.
        return disturbance(measured, runs, self.cores, each_has_a_core=bool(self.own_plan.settings))

    def fits(self, seconds: float) -> bool:
        """Whether something that takes so many seconds fits into the budget."""
        return seconds <= self.left_seconds

    @property
    def starts_slowly(self) -> bool:
        """Whether one more arm of a verification takes more than a minute to start, in all replicates together."""
        return speed.HEADLINE_REPLICATES * self.costs.startup_seconds > _CHEAP_SECONDS

    def replicates_seconds(
        self, arms: Sequence[Plan | Arm], count: int, rounds: int, *, compiles_all: bool = True
    ) -> float:
        """The estimated seconds of so many replicates of these arms; each slot runs one at a time."""
        plans = [it.plan if isinstance(it, Arm) else it for it in arms]
        on_a_slot = math.ceil(count / self.executor.slots)
        at_once = self.replicates_at_once(len(plans))
        return self.costs.of_replicates(plans, on_a_slot, rounds, at_once=at_once, compiles_all=compiles_all)

    # -- requests -----------------------------------------------------------------------------

    @property
    def most_seconds(self) -> float | None:
        """The time limit of what begins now: the remaining budget, else the rest of the reserve; None: no budget."""
        budget = self.options.budget_seconds
        if budget is None:
            return None
        return self.left_seconds if self.left_seconds > 0 else max(0.0, budget - self.spent_seconds)

    @property
    def shortest_limit_seconds(self) -> float:
        """The shortest limit after which a block counts as a hang, however little time is left."""
        return max(_SHORTEST_LIMIT_SECONDS, 3 * self.costs.shape.round_seconds)

    @property
    def shortest_start_limit_seconds(self) -> float:
        """The same for a start, and for a block in which something compiles."""
        return self.shortest_limit_seconds + 3 * self.costs.startup_seconds

    def first_assignment(self) -> Assignment:
        """Run the first child of a study; its start-up and step times are unknown, so the budget does not shorten its
        limits."""
        return msgspec.structs.replace(
            self.assignment(),
            startup_limit_seconds=self.options.startup_limit_seconds,
            step_limit_seconds=self.options.block_limit_seconds,
        )

    def assignment(self, plan: Plan = plans_of.EMPTY) -> Assignment:
        """An assignment with this plan; a hang may take only a share of the remaining budget."""
        options, left = self.options, self.left_seconds
        longest_startup = max(self.shortest_start_limit_seconds, _STARTUP_SHARE * left)
        longest_block = max(self.shortest_limit_seconds, _BLOCK_SHARE * left)
        return Assignment(
            workload=self.workload,
            plan=plan if plan.settings else self.own_plan,
            seed=options.seed,
            step_source=self.step_source,
            startup_limit_seconds=min(options.startup_limit_seconds, longest_startup),
            block_limit_seconds=min(options.block_limit_seconds, longest_block),
            show_output=options.show_output,
            instruments=self.instruments,
        )

    def launch(
        self,
        assignment: Assignment,
        *,
        steps: int,
        seconds: float | None = None,
        minimum_steps: int = 1,
        patience_seconds: float = 0.0,
        most_seconds: float | None = None,
    ) -> Run:
        """Run one child.

        Its limit allows for steps three times as long as the baseline's, and for a single step of ``--block-limit`` or
        a hundred times as long. Without ``most_seconds`` it ends at the last step that the budget allows.
        """
        most = self.most_seconds if most_seconds is None else most_seconds
        request = msgspec.structs.replace(
            self._launch_request(assignment, steps),
            seconds=seconds,
            minimum_steps=minimum_steps,
            patience_seconds=patience_seconds,
            most_seconds=None if most == math.inf else most,
        )
        return self._repeated(request, iter(()))

    def launch_together(self, wanted: Sequence[tuple[Assignment, int]]) -> list[Run]:
        """Run children that are not timed, each like :meth:`launch`, though they load what an earlier one compiled; as
        many as memory holds run at the same time."""
        at_once = self.launches_at_once
        runs: list[Run] = []
        for begin in range(0, len(wanted), at_once):
            requests = [self._launch_request(*it, loads_code=True) for it in wanted[begin : begin + at_once]]
            answers = self.executor.launch_together(requests)
            runs += [self._repeated(it, iter([run])) for it, run in zip(requests, answers, strict=True)]
        return runs

    @property
    def launches_at_once(self) -> int:
        """How many launches that are not timed may run at the same time."""
        return self.arms_at_once if self.interleaved and self.has_one_process and not self.suspended else 1

    def replicates_at_once(self, arms: int) -> int:
        """How many replicates of so many arms start together on a slot: several where that saves slow starts."""
        if self.launches_at_once < 2:
            return 1
        starts = self.costs.starts
        for count in range(self.most_started // arms, 1, -1):
            worth = starts.saved(count, arms) >= (count - 1) * _WORTH_STARTING_TOGETHER_SECONDS
            if worth and starts.together(count * arms) <= _MOST_CROWDING * starts.seconds:
                return count
        return 1

    def _launch_request(self, assignment: Assignment, steps: int, *, loads_code: bool = False) -> LaunchRequest:
        limit = max(assignment.block_limit_seconds, 3 * self.costs.of_steps(steps))
        slowest_step = max(self.options.block_limit_seconds, _SLOWEST_STEP * self.costs.of_steps(1))
        one_step = slowest_step if assignment.step_limit_seconds is None else assignment.step_limit_seconds
        patient = msgspec.structs.replace(assignment, block_limit_seconds=limit, step_limit_seconds=one_step)
        return LaunchRequest(assignment=patient, steps=steps, most_seconds=self.most_seconds, loads_code=loads_code)

    def _repeated(self, request: LaunchRequest, answers: Iterator[Run]) -> Run:
        """A cached answer, or that of a launch, which is repeated if it was killed from outside."""

        def ask() -> Run:
            known = next(answers, None)
            return self.executor.launch(request) if known is None else known

        run = repeated(ask, lambda run: (run,), self._note_repetition, allowed=self._time_is_left)
        self.unmodified.note(request.assignment, run, self.own_plan)
        return run

    def _note_repetition(self) -> None:
        self._repetitions += 1
        self.on_repetition(self._repetitions)

    def _time_is_left(self) -> bool:
        return self.left_seconds > 0

    def take_replicate(
        self,
        arms: Sequence[Plan | Arm],
        *,
        rounds: int,
        purpose: str,
        shape: Shape | None = None,
        patience_seconds: float = 0.0,
        one_launch: bool = False,
        compiles_all: bool = False,
    ) -> Replicate | Failure:
        """Take one replicate like :meth:`take_replicates`; with ``one_launch`` its arms share a process."""
        (taken,) = self.take_replicates(
            arms,
            count=1,
            rounds=rounds,
            purpose=purpose,
            shape=shape,
            patience_seconds=patience_seconds,
            one_launch=one_launch,
            compiles_all=compiles_all,
        )
        return taken

    def take_replicates(
        self,
        arms: Sequence[Plan | Arm],
        *,
        count: int,
        rounds: int,
        purpose: str,
        shape: Shape | None = None,
        patience_seconds: float = 0.0,
        one_launch: bool = False,
        compiles_all: bool = False,
    ) -> list[Replicate | Failure]:
        """Take replicates of this ``shape``, with a fresh launch of each arm; those of one slot start together.

        ``purpose`` distinguishes replicates, so that each has its own order of arms. A replicate whose *first* arm
        failed is repeated once, and one whose script ended too soon is repeated with shorter blocks. With
        ``compiles_all`` the first one starts as a first run does, without what earlier launches compiled.
        """
        assignments = tuple(map(self._assigned, arms))
        if one_launch and any(one.lever in self.slow_levers for it in assignments for one in it.plan.settings):
            before_it = self.costs.startup_seconds + self.shortest_limit_seconds
            limit = min(_COMPILING_SECONDS, self.options.startup_limit_seconds, self.left_seconds - before_it)
            assignments = tuple(_compiling_in_a_block(it, limit) for it in assignments)

        def ask(compiling: Sequence[bool]) -> list[Replicate]:
            most = min(rounds, self.costs.shape.most_rounds)
            request = TurnRequest(
                arms=assignments, rounds=most, patience_seconds=patience_seconds, one_launch=one_launch
            )
            wanted = [msgspec.structs.replace(request, compiles_all=it) for it in compiling]
            return self._request(wanted, purpose, shape)

        is_usual = shape is None and not one_launch
        compiling = [compiles_all, *([False] * (count - 1))]
        return [
            self._settled(turns, partial(ask, [it]), is_usual)
            for it, turns in zip(compiling, ask(compiling), strict=True)
        ]

    def _settled(
        self, turns: Replicate, again: Callable[[], Sequence[Replicate]], is_usual: bool
    ) -> Replicate | Failure:
        """The replicate, repeated if that may help, or a Failure. Only the usual shape gets shorter blocks."""
        retried = False
        while True:
            failure = failure_of(turns)
            if failure is None:
                return turns
            if failure.cut or not self._time_is_left():
                return failure
            short = isinstance(failure.ending, Completed)
            if short and not is_usual:
                return failure
            shortened = short and self.shorten_blocks()
            if not shortened and (failure.arm != 0 or retried):
                return failure
            retried = retried or not shortened
            (turns,) = again()

    def _assigned(self, arm: Plan | Arm) -> Assignment:
        if isinstance(arm, Plan):
            return self.assignment(arm)
        assignment = self.assignment(arm.plan)
        workload = arm.workload or assignment.workload
        return msgspec.structs.replace(assignment, workload=workload, instruments=arm.instruments)

    def _request(self, wanted: Sequence[TurnRequest], purpose: str, cut: Shape | None) -> list[Replicate]:
        shape = cut or self.costs.shape
        warm_up_limit_seconds = min(120.0, max(_SHORTEST_LIMIT_SECONDS, _BLOCK_SHARE * self.left_seconds))
        requests = [
            msgspec.structs.replace(
                it,
                block_seconds=shape.block_seconds,
                block_steps=shape.block_steps,
                block_turns=shape.block_turns,
                order_seed=self._order_seed(purpose),
                warm_up_limit_seconds=warm_up_limit_seconds,
                warm_up_steps=self.warm_up_steps,
                interleaved=self.interleaved,
                suspended=self.suspended and not it.one_launch,
                most_seconds=self.most_seconds if self.cuts_replicates else None,
            )
            for it in wanted
        ]
        began = self.spent_seconds
        answers = self.executor.take_turns(requests)
        alone = len(wanted) == 1 and not wanted[0].patience_seconds
        together = math.ceil(len(wanted) / self.executor.slots)
        return [
            self._learned(it, turns, shape, began, alone, together) for it, turns in zip(requests, answers, strict=True)
        ]

    def _order_seed(self, purpose: str) -> int:
        number = self._replicates_taken.get(purpose, 0)
        self._replicates_taken[purpose] = number + 1
        return zlib.crc32(f"{self.options.seed} {purpose} {number}".encode())

    def _learned(
        self, request: TurnRequest, first: Replicate, shape: Shape, began: float, alone: bool, together: int
    ) -> Replicate:
        """Repeat a replicate that was killed from outside, and learn its costs: if taken ``alone``, all time since
        ``began``. So many started ``together``."""
        answers = iter([first])

        def answer() -> Replicate:
            nonlocal began
            if (known := next(answers, None)) is not None:
                return known
            began = self.spent_seconds
            return self.executor.take_turns([request])[0]

        turns = repeated(answer, lambda turns: turns.runs, self._note_repetition, allowed=self._time_is_left)
        if failure_of(turns) is None and request.one_launch:
            self.costs.learn_one_launch([it.plan for it in request.arms], turns)
        elif failure_of(turns) is None:
            elapsed_seconds = self.spent_seconds - began if alone else turns.wall_seconds
            plans = [it.plan for it in request.arms]
            self.costs.learn_replicate(
                *(turns, plans, elapsed_seconds, shape), started_together=together, compiles_all=request.compiles_all
            )
            self._learn_room(turns, len(request.arms))
            for arm, run in zip(request.arms, turns.runs, strict=True):
                self.unmodified.note(arm, run, self.own_plan)
        return turns

    def _learn_room(self, turns: Replicate, arms: int) -> None:
        """Remember that so many arms did not fit into memory together, so that it is not tried again."""
        if turns.interleaved or not self.interleaved:
            return
        if self.suspended:
            self.suspended = self.interleaved = False
        elif arms > FEWEST_ARMS:
            self.arms_at_once = FEWEST_ARMS
        else:
            self.interleaved = False

    def shorten_blocks(self) -> bool:
        """Make blocks half as long from now on; False if they are as short as can be."""
        before, self.costs.shape = self.costs.shape, self.costs.shape.halved()
        return self.costs.shape != before

    # -- memory -------------------------------------------------------------------------------

    def fit_arms(self, machine: Machine, baseline: Run) -> None:
        """How many arms may run at the same time, and how many launches start at the same time, by the peak memory of
        the baseline.

        On a device the allocator's reserve and the context count, and memory of other processes is unavailable. If too
        few arms fit and the driver can move memory to the host, waiting arms are suspended.
        """
        self.has_one_process = baseline.facts.processes == 1
        on_device, device_bytes = fitting_on_device(machine, baseline, most=_MOST_STARTED, memory_share=_MEMORY_SHARE)
        too_few = on_device < FEWEST_ARMS
        self.suspended = too_few and machine.suspends_devices and baseline.facts.processes == 1
        host_bytes = baseline.host_peak_bytes + (device_bytes if self.suspended else 0)
        fitting = _MOST_STARTED if self.suspended else min(_MOST_STARTED, on_device)
        if host_bytes and machine.memory_bytes:
            fitting = min(fitting, int(_MEMORY_SHARE * machine.memory_bytes / host_bytes))
        self.most_started = fitting
        self.arms_at_once = max(2, min(_MOST_ARMS, fitting))
        self.interleaved = fitting >= FEWEST_ARMS
        self.suspended = self.suspended and self.interleaved
        if self.suspended:
            shape = self.costs.shape
            seconds = max(shape.block_seconds, _SUSPENDED_BLOCK_SECONDS)
            self.costs.shape = replace(shape, block_seconds=seconds, block_turns=1)
            self.set_rounds(FEWEST_ROUNDS)

    def choose_rounds(self, levers: int) -> None:
        """Use fewer rounds if the budget would not otherwise allow the screening of every lever."""
        if self.options.rounds is None:
            usual = levers * self.replicates_seconds([plans_of.EMPTY] * 3, 3, USUAL_ROUNDS)
            self.rounds = USUAL_ROUNDS if self.fits(usual) and not self.suspended else FEWEST_ROUNDS
        self.rounds = min(self.rounds, self.costs.shape.most_rounds)

    def set_rounds(self, rounds: int) -> None:
        """Adopt a better number of rounds, unless the options fix it or the budget is short."""
        if self.options.rounds is None and (self.options.budget_seconds is None or rounds < self.rounds):
            self.rounds = max(FEWEST_ROUNDS, min(rounds, MOST_ROUNDS))
        self.rounds = min(self.rounds, self.costs.shape.most_rounds)


def _compiling_in_a_block(assignment: Assignment, least_seconds: float) -> Assignment:
    """The same for a process that switches: what a lever compiles is a part of its first block, not of the start."""
    longest = max(assignment.block_limit_seconds, assignment.startup_limit_seconds, least_seconds)
    return msgspec.structs.replace(assignment, block_limit_seconds=longest)
