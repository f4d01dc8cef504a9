"""Asking the executor: assignments, sets, their cost, and what is left of the budget."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.costs import FEWEST_ROUNDS, MOST_ROUNDS, USUAL_ROUNDS, Costs, Shape
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.repeat import repeated
from hotlap.measure.disturbance import disturbance
from hotlap.records import (
    Accelerator,
    Assignment,
    Completed,
    Crashed,
    Disturbance,
    Ending,
    Instrument,
    LaunchRequest,
    Machine,
    Measurement,
    Plan,
    Run,
    StepSource,
    Stopped,
    TurnRequest,
    TurnSet,
    Workload,
)
from hotlap.wording import ending_text

FEWEST_ROUNDS_OF_A_SHORT_SCRIPT = 3
FEWEST_BLOCK_STEPS = 2
FEWEST_ARMS = 3
"""Reference, its repeat and one candidate."""

_MOST_ARMS = 6
_MEMORY_SHARE = 0.8
_SUSPENDED_BLOCK_SECONDS = 2.0
"""Moving an arm to the device and back takes seconds, so fewer and longer blocks are worth more."""
_SHORTEST_LIMIT_SECONDS = 5.0
_STARTUP_SHARE = 0.4
_BLOCK_SHARE = 0.15
_SLOWEST_STEP = 100
"""How many times longer than the baseline's a single step may be, among the steps of a launch: it may be in float64,
compile, or be followed by an evaluation."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A set that gave no numbers: which arm ended it, and how. ``cut`` says that no arm did: the time was over."""

    arm: int
    ending: Ending
    reason: str
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Arm:
    """What one of the launches that take turns runs: a plan, of another workload or with instruments where these are
    given."""

    plan: Plan = plans_of.EMPTY
    workload: Workload | None = None
    instruments: tuple[Instrument, ...] = ()


class Trials:
    """Everything that the stages ask of the executor goes through here, so that budget, seeds and limits are set in
    one place.

    ``has_one_process`` says whether a launch is a single trainer. With ``suspended`` arms leave the device while they
    wait. ``reserve_seconds`` is what verification will need; no trial may eat into it. With ``cuts_sets`` a set ends
    when its time is over, as a :class:`Failure` that is ``cut``, which is no failure of an arm. ``cores`` are those
    that may be used here. ``own_plan`` is what an assignment without a plan gets: nothing, but for fewer threads where
    others leave no core for them. ``waits_in_vain`` counts the waits for a quiet machine after which it was no quieter,
    ``most_waits`` of them at most, and ``again_seconds`` is what such waits and the measurements after them took.
    ``on_repetition`` is called when a trial is repeated because something outside killed it, with how many were so far.
    """

    def __init__(self, workload: Workload, options: Options, executor: JournaledExecutor) -> None:
        self.workload = workload
        self.options = options
        self.executor = executor
        self.step_source: StepSource = "call" if workload.kind == "inference" else "auto"
        self.costs = Costs(0.0, Shape(step_seconds=1.0))
        self.rounds = options.rounds or USUAL_ROUNDS
        self.arms_at_once = _MOST_ARMS
        self.interleaved = True
        self.suspended = False
        self.has_one_process = True
        self.reserve_seconds = 0.0
        self.cores = 1
        self.own_plan = plans_of.EMPTY
        self.most_waits = 2
        self.waits_in_vain = 0
        self.again_seconds = 0.0
        self.cuts_sets = False
        self.on_repetition: Callable[[int], object] = lambda count: None
        self._repetitions = 0
        self._sets_taken: dict[str, int] = {}

    # -- budget -------------------------------------------------------------------------------

    @property
    def spent_seconds(self) -> float:
        return self.executor.spent_seconds

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that trials connected to so far."""
        return self.executor.hosts

    @property
    def left_seconds(self) -> float:
        """What remains of the budget for trials, the reserve taken off; infinite without a budget."""
        if self.options.budget_seconds is None:
            return math.inf
        return self.options.budget_seconds - self.spent_seconds - self.reserve_seconds

    def disturbance(self, measured: Measurement, runs: Iterable[Run]) -> Disturbance | None:
        """What others did to a measurement that rests on these runs; None where it was left alone."""
        # The one reason for an own plan is that each thread shall have a core.
        return disturbance(measured, runs, self.cores, each_has_a_core=bool(self.own_plan.settings))

    def fits(self, seconds: float) -> bool:
        """Whether something that takes so long can still be paid for."""
        return seconds <= self.left_seconds

    def replicates_seconds(self, arms: Sequence[Plan | Arm], count: int, rounds: int) -> float:
        """How long so many replicates of these arms will take: on several slots as many run at the same time."""
        plans = [it.plan if isinstance(it, Arm) else it for it in arms]
        return math.ceil(count / self.executor.slots) * self.costs.of_set(plans, rounds)

    # -- requests -----------------------------------------------------------------------------

    @property
    def most_seconds(self) -> float | None:
        """How long what begins now may take at most: what is left, or where even the reserve is touched, what is left
        of that. None without a budget."""
        budget = self.options.budget_seconds
        if budget is None:
            return None
        return self.left_seconds if self.left_seconds > 0 else max(0.0, budget - self.spent_seconds)

    @property
    def shortest_limit_seconds(self) -> float:
        """How long a block may take at least before it counts as a hang, however little time is left."""
        return max(_SHORTEST_LIMIT_SECONDS, 3 * self.costs.shape.round_seconds)

    def first_assignment(self) -> Assignment:
        """The first child of a study. How long its start and its steps take is not known yet, so that no budget
        shortens the limits on them."""
        return msgspec.structs.replace(
            self.assignment(),
            startup_limit_seconds=self.options.startup_limit_seconds,
            step_limit_seconds=self.options.block_limit_seconds,
        )

    def assignment(self, plan: Plan = plans_of.EMPTY) -> Assignment:
        """A child with this plan; of what is left of a budget, a hang may take no more than a share."""
        options, left = self.options, self.left_seconds
        usual_seconds = self.shortest_limit_seconds
        longest_startup = max(usual_seconds + 3 * self.costs.startup_seconds, _STARTUP_SHARE * left)
        longest_block = max(usual_seconds, _BLOCK_SHARE * left)
        return Assignment(
            workload=self.workload,
            plan=plan if plan.settings else self.own_plan,
            seed=options.seed,
            step_source=self.step_source,
            startup_limit_seconds=min(options.startup_limit_seconds, longest_startup),
            block_limit_seconds=min(options.block_limit_seconds, longest_block),
            show_output=options.show_output,
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
        """One child alone; its limit allows for steps that take three times as long as the baseline's, a single one for
        ``--block-limit`` or, where that is more, for a hundred times as long. Where ``most_seconds`` are not given, it
        ends at the last step that the budget allows.
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
        """Children with so many steps each, as :meth:`launch` runs one, that are not timed: as many as memory holds
        start side by side."""
        at_once = self.launches_at_once
        runs: list[Run] = []
        for begin in range(0, len(wanted), at_once):
            requests = [self._launch_request(*it) for it in wanted[begin : begin + at_once]]
            answers = self.executor.launch_together(requests)
            runs += [self._repeated(it, iter([run])) for it, run in zip(requests, answers, strict=True)]
        return runs

    @property
    def launches_at_once(self) -> int:
        """How many launches that are not timed may be alive together."""
        return self.arms_at_once if self.interleaved and self.has_one_process and not self.suspended else 1

    def _launch_request(self, assignment: Assignment, steps: int) -> LaunchRequest:
        limit = max(assignment.block_limit_seconds, 3 * self.costs.of_steps(steps))
        one_step = assignment.step_limit_seconds
        if one_step is None:
            one_step = max(self.options.block_limit_seconds, _SLOWEST_STEP * self.costs.of_steps(1))
        patient = msgspec.structs.replace(assignment, block_limit_seconds=limit, step_limit_seconds=one_step)
        return LaunchRequest(assignment=patient, steps=steps, most_seconds=self.most_seconds)

    def _repeated(self, request: LaunchRequest, answers: Iterator[Run]) -> Run:
        """The answer that is there already, or that of a launch; launched again where something outside killed it."""

        def ask() -> Run:
            known = next(answers, None)
            return self.executor.launch(request) if known is None else known

        return repeated(ask, lambda run: (run,), self._note_repetition, allowed=self._time_is_left)

    def _note_repetition(self) -> None:
        self._repetitions += 1
        self.on_repetition(self._repetitions)

    def _time_is_left(self) -> bool:
        return self.left_seconds > 0

    def take_set(
        self,
        arms: Sequence[Plan | Arm],
        *,
        rounds: int,
        purpose: str,
        shape: Shape | None = None,
        patience_seconds: float = 0.0,
        one_launch: bool = False,
    ) -> TurnSet | Failure:
        """One replicate, as :meth:`take_sets` takes several; with ``one_launch`` its arms share a process."""
        (taken,) = self.take_sets(
            arms,
            count=1,
            rounds=rounds,
            purpose=purpose,
            shape=shape,
            patience_seconds=patience_seconds,
            one_launch=one_launch,
        )
        return taken

    def take_sets(
        self,
        arms: Sequence[Plan | Arm],
        *,
        count: int,
        rounds: int,
        purpose: str,
        shape: Shape | None = None,
        patience_seconds: float = 0.0,
        one_launch: bool = False,
    ) -> list[TurnSet | Failure]:
        """So many replicates (at most as many as there are slots) with a fresh launch of each arm, cut as ``shape``
        says (by default as usual); ``purpose`` tells sets apart, so that each has its own order.

        A set whose *first* arm failed is tried once more, and one whose script ended too soon with shorter blocks.
        """
        assignments = tuple(map(self._assigned, arms))

        def ask(count: int) -> list[TurnSet]:
            rounds_here = min(rounds, self.costs.shape.most_rounds)
            return self._ask(assignments, rounds_here, purpose, shape, patience_seconds, count, one_launch)

        is_usual = shape is None and not one_launch
        return [self._settled(turns, lambda: ask(1)[0], is_usual) for turns in ask(count)]

    def _settled(self, turns: TurnSet, again: Callable[[], TurnSet], is_usual: bool) -> TurnSet | Failure:
        """A replicate, or why there is none after what can be done about it. Only of usual ones the blocks are made
        shorter: another one of which the script ended too soon is given up."""
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
            if short and self.costs.shape.block_steps > FEWEST_BLOCK_STEPS:
                self._shorten_blocks()
            elif failure.arm == 0 and not retried:
                retried = True
            else:
                return failure
            turns = again()

    def _assigned(self, arm: Plan | Arm) -> Assignment:
        if isinstance(arm, Plan):
            return self.assignment(arm)
        assignment = self.assignment(arm.plan)
        workload = arm.workload or assignment.workload
        return msgspec.structs.replace(assignment, workload=workload, instruments=arm.instruments)

    def _ask(
        self,
        arms: tuple[Assignment, ...],
        rounds: int,
        purpose: str,
        cut: Shape | None,
        patience_seconds: float,
        count: int,
        one_launch: bool,
    ) -> list[TurnSet]:
        shape = cut or self.costs.shape
        warm_up_limit_seconds = min(120.0, max(_SHORTEST_LIMIT_SECONDS, _BLOCK_SHARE * self.left_seconds))
        requests = [
            TurnRequest(
                arms=arms,
                rounds=rounds,
                block_seconds=shape.block_seconds,
                block_steps=shape.block_steps,
                order_seed=self._order_seed(purpose),
                warm_up_limit_seconds=warm_up_limit_seconds,
                interleaved=self.interleaved,
                suspended=self.suspended and not one_launch,
                one_launch=one_launch,
                patience_seconds=patience_seconds,
                most_seconds=self.most_seconds if self.cuts_sets else None,
            )
            for _ in range(count)
        ]
        began = self.spent_seconds
        answers = self.executor.take_turns(requests)
        alone = count == 1 and not patience_seconds
        return [self._learned(it, turns, shape, began, alone) for it, turns in zip(requests, answers, strict=True)]

    def _order_seed(self, purpose: str) -> int:
        number = self._sets_taken.get(purpose, 0)
        self._sets_taken[purpose] = number + 1
        return zlib.crc32(f"{self.options.seed} {purpose} {number}".encode())

    def _learned(self, request: TurnRequest, first: TurnSet, shape: Shape, began: float, alone: bool) -> TurnSet:
        """The replicate, taken again where something outside killed it, with its costs remembered: of one that was
        taken ``alone`` all that passed since it began."""
        answers = iter([first])

        def answer() -> TurnSet:
            nonlocal began
            if (known := next(answers, None)) is not None:
                return known
            began = self.spent_seconds
            return self.executor.take_turns([request])[0]

        turns = repeated(answer, lambda turns: turns.runs, self._note_repetition, allowed=self._time_is_left)
        if failure_of(turns) is None and not request.one_launch:
            elapsed_seconds = self.spent_seconds - began if alone else turns.wall_seconds
            self.costs.learn_set(turns, [it.plan for it in request.arms], elapsed_seconds, shape)
            self._learn_room(turns, len(request.arms))
        return turns

    def _learn_room(self, turns: TurnSet, arms: int) -> None:
        """Remember when so many arms did not fit into memory together, so that it is not tried again."""
        if turns.interleaved or not self.interleaved:
            return
        if self.suspended:
            self.suspended = self.interleaved = False
        elif arms > FEWEST_ARMS:
            self.arms_at_once = FEWEST_ARMS
        else:
            self.interleaved = False

    def _shorten_blocks(self) -> None:
        shape = self.costs.shape
        self.costs.shape = replace(
            shape,
            block_steps=max(FEWEST_BLOCK_STEPS, shape.block_steps // 2),
            block_seconds=shape.block_seconds / 2,
        )

    # -- memory -------------------------------------------------------------------------------

    def fit_arms(self, machine: Machine, baseline: Run) -> None:
        """How many arms may be alive together, by what the baseline took at most: on a device the allocator's reserve
        and the context count, and what other processes hold is not there to be had. Where that are too few, and the
        driver can move their memory to the host while they wait, arms are suspended."""
        self.has_one_process = baseline.facts.processes == 1
        on_device, device_bytes = _fitting_on_device(machine, baseline)
        too_few = on_device < FEWEST_ARMS
        self.suspended = too_few and machine.suspends_devices and baseline.facts.processes == 1
        host_bytes = baseline.host_peak_bytes + (device_bytes if self.suspended else 0)
        fitting = _MOST_ARMS if self.suspended else min(_MOST_ARMS, on_device)
        if host_bytes and machine.memory_bytes:
            fitting = min(fitting, int(_MEMORY_SHARE * machine.memory_bytes / host_bytes))
        self.arms_at_once = max(2, fitting)
        self.interleaved = fitting >= FEWEST_ARMS
        self.suspended = self.suspended and self.interleaved
        if self.suspended:
            shape = self.costs.shape
            self.costs.shape = replace(shape, block_seconds=max(shape.block_seconds, _SUSPENDED_BLOCK_SECONDS))
            self.set_rounds(FEWEST_ROUNDS)

    def choose_rounds(self, levers: int) -> None:
        """Fewer rounds where the budget could not otherwise give every lever its first look."""
        if self.options.rounds is None:
            usual = levers * self.replicates_seconds([plans_of.EMPTY] * 3, 3, USUAL_ROUNDS)
            self.rounds = USUAL_ROUNDS if self.fits(usual) and not self.suspended else FEWEST_ROUNDS
        self.rounds = min(self.rounds, self.costs.shape.most_rounds)

    def set_rounds(self, rounds: int) -> None:
        """Adopt a better number of rounds, unless the options fix it or the budget is short."""
        if self.options.rounds is None and (self.options.budget_seconds is None or rounds < self.rounds):
            self.rounds = max(FEWEST_ROUNDS, min(rounds, MOST_ROUNDS))
        self.rounds = min(self.rounds, self.costs.shape.most_rounds)


def failure_of(turns: TurnSet) -> Failure | None:
    """The arm because of which a set has no numbers, or None for a set that ran through."""
    for arm, run in enumerate(turns.runs):
        if ran_through(run):
            continue
        ending = run.ending
        if isinstance(ending, Completed):
            ending = Crashed(exit_code=ending.exit_code, steps_done=steps_done(run))
        return Failure(arm, ending, ending_text(ending))
    if turns.rounds and all(len(it) >= FEWEST_ROUNDS_OF_A_SHORT_SCRIPT for it in turns.rounds):
        return None
    ended = next((i for i, run in enumerate(turns.runs) if isinstance(run.ending, Completed)), None)
    if ended is None:
        return Failure(0, Stopped(), "The budget ended before the replicate was complete.", cut=True)
    return Failure(ended, Completed(), "The script ended before the replicate was complete.")


def ran_through(run: Run) -> bool:
    """Whether a run came to its last wanted step, or to the script's own good end."""
    return isinstance(run.ending, Stopped) or (isinstance(run.ending, Completed) and run.ending.exit_code == 0)


def steps_done(run: Run) -> int:
    """How many steps a run did as far as is known: a process that could not report leaves only their number."""
    known = 0 if isinstance(run.ending, (Completed, Stopped)) else run.ending.steps_done
    return max(known, len(run.steps.wall_seconds))


def _fitting_on_device(machine: Machine, baseline: Run) -> tuple[int, int]:
    """How many arms like the baseline the device with the least room holds, and what one takes of it."""
    accelerator = _smallest(machine.accelerators)
    if not baseline.device_peak_bytes or accelerator is None or not accelerator.memory_bytes:
        return _MOST_ARMS, 0
    free_bytes = accelerator.memory_bytes - accelerator.used_bytes
    own_bytes = max(baseline.device_peak_bytes, baseline.device_footprint_bytes - accelerator.used_bytes)
    return int(_MEMORY_SHARE * free_bytes / own_bytes), own_bytes


def _smallest(accelerators: Sequence[Accelerator]) -> Accelerator | None:
    return min(accelerators, key=lambda it: it.memory_bytes - it.used_bytes, default=None)
