"""Arms that take turns, block by block, so that disturbances of the machine affect all of them alike.

Two ways, both from the literature on paired experiments: the arms alive together, one block each in random order in
every round (a randomised block design); or, where memory forbids that, whole launches in an order that is repeated
backwards (ABBA, BAAB), which cancels a steady drift.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence

from hotlap.measure.speed import fewest_warm_up_steps, warmed_up
from hotlap.records import Assignment, Block, Completed, Proceed, Run, Stopped, TurnRequest
from hotlap.trial.child import Child

Rounds = tuple[tuple[float, ...], ...]
Start = Callable[[Assignment], Child]

_MARGIN = 1.25
"""A block is planned longer than necessary by this factor, since step times vary."""
_STEPS_AFTER_A_SUSPENSION = 3
_LONGEST_BLOCK_STEPS = 1_000_000
_MOST_VOID = 0.5
"""Of the wanted rounds. A void one is repeated: in one of its blocks an allocator had to free its cache and try again,
which takes several steps' time, and happens because the other arms hold the memory."""


def take_turns(children: Sequence[Child], request: TurnRequest) -> tuple[tuple[Run, ...], Rounds]:
    """Let children that were just started take turns, and end them. Only one runs at a time; the others' process trees
    are frozen.

    The rounds are those that all arms went through. There are none when an arm failed: its run says how.
    """
    rounds = _interleaved_blocks(children, request)
    runs = tuple(child.finish() for child in children)
    return runs, seconds_per_sample(rounds, len(children)) if all_ended_well(runs) else no_rounds(len(children))


def _interleaved_blocks(children: Sequence[Child], request: TurnRequest) -> list[list[Block]]:
    """One row per round, with one block for each arm."""
    deadline = deadline_of(request)
    if not start_together(children, deadline, all_needed=True):
        return []
    steps: list[int] = []
    for child in children:
        too_late = any(it.over for it in children) or time.perf_counter() > deadline
        long_enough = None if too_late else warm_up(child, request, deadline)
        if long_enough is None:
            return []
        child.freeze()
        steps.append(long_enough)

    def turn(arm: int, turn_steps: int) -> Block | None:
        block = children[arm].run_block(_order(turn_steps, _lead_in(request)))
        if block is not None:
            children[arm].freeze()
        return block

    return list(RoundsInTurns(request, steps, turn).until(deadline, _lead_in(request)))


class RoundsInTurns:
    """Rounds of one block for each arm, taken in ``block_turns`` turns: in each, all arms run in random order.

    What keeps cores busy for a second or two thus falls on all arms alike, also where a block takes as long. A turn
    has one step more at random: where every third step waits for data, the steps that lead in turns of two would else
    always be those that wait, or never. ``steps`` is how many a block of each arm has at least, and ``turn`` runs so
    many of an arm; None where that is over.
    """

    def __init__(self, request: TurnRequest, steps: list[int], turn: Callable[[int, int], Block | None]) -> None:
        self._request = request
        self._steps = steps
        self._turn = turn
        self._order = list(range(len(steps)))
        self._random = random.Random(request.order_seed)

    def until(self, deadline: float, lead_in: int) -> Iterator[list[Block]]:
        """The wanted rounds, as many as there is time for while all arms go on; void ones are repeated, up to a share.
        So many steps lead in each turn."""
        wanted, done, void = self._request.rounds, 0, 0
        longest = 0.0
        while done < wanted and void <= _MOST_VOID * wanted and time.perf_counter() + longest <= deadline:
            blocks = self.take()
            if blocks is None:
                return
            if any(it.allocator_retries for it in blocks):
                void += 1
                continue
            done += 1
            longest = self._likely_seconds(blocks, lead_in)
            yield blocks

    def _likely_seconds(self, blocks: Sequence[Block], lead_in: int) -> float:
        """The longest time that another round is likely to take, judging by this one: the margin covers what leads in
        one turn."""
        uncounted = (lead_in + 1) * (self._request.block_turns - 1)  # a turn may have one step more
        return _MARGIN * sum(it.wall_seconds * (1 + uncounted / it.steps) for it in blocks)

    def take(self) -> list[Block] | None:
        """The blocks of one round, in the order of the arms; None where an arm is over."""
        turns = self._request.block_turns
        parts: list[list[Block]] = [[] for _ in self._steps]
        for _ in range(turns):
            self._random.shuffle(self._order)
            more = self._random.randrange(2)
            for arm in self._order:
                part = self._turn(arm, math.ceil(self._steps[arm] / turns) + more)
                if part is None:
                    return None
                parts[arm].append(part)
        blocks = [_joined(it) for it in parts]
        for arm, block in enumerate(blocks):
            self._steps[arm] = enough(self._steps[arm], block, self._request.block_seconds)
        return blocks


def _joined(parts: Sequence[Block]) -> Block:
    """What rounds need of a block that was taken in parts. Its samples are unknown (0) where those of a part are."""
    counted = all(it.samples for it in parts)
    return Block(
        steps=sum(it.steps for it in parts),
        samples=sum(it.samples for it in parts) if counted else 0,
        wall_seconds=math.fsum(it.wall_seconds for it in parts),
        allocator_retries=sum(it.allocator_retries for it in parts),
    )


def is_cramped(runs: Sequence[Run], request: TurnRequest) -> bool:
    """Whether so many rounds were void, since an arm's allocator found no memory next to the others, that arms had
    better not be alive together."""
    void_rounds = max((_void_rounds(run.blocks[run.warm_up_blocks :], request.block_turns) for run in runs), default=0)
    return len(runs) > 1 and void_rounds > _MOST_VOID * request.rounds


def _void_rounds(blocks: Sequence[Block], turns: int) -> int:
    rounds = (blocks[first : first + turns] for first in range(0, len(blocks), turns))
    return sum(any(it.allocator_retries for it in parts) for parts in rounds)


def deadline_of(request: TurnRequest) -> float:
    """On the clock of ``time.perf_counter``, when a replicate that begins now must be over."""
    return math.inf if request.most_seconds is None else time.perf_counter() + request.most_seconds


def start_together(children: Sequence[Child], deadline: float = math.inf, *, all_needed: bool = False) -> bool:
    """Wait until all have done their first step, or are over; each is frozen after it. Returns early when one is over
    and ``all_needed``; False when the time is over.

    They import, build and load in parallel, but on an accelerator take their first step one at a time: there libraries
    benchmark their kernels, and a choice made while another arm runs would be used from then on.
    """
    starting = list(children)
    stepping: Child | None = None
    while starting:
        for child in tuple(starting):
            if child.starting(0.05 / len(starting)):
                if time.perf_counter() > deadline:
                    return False
                if child.waits_on_device and stepping in (None, child):
                    stepping = child
                    child.let_go_on()
                continue
            if child.over and all_needed:
                return True
            if not child.over:
                child.freeze()
            starting.remove(child)
            stepping = None if stepping is child else stepping
    return True


def warm_up(child: Child, request: TurnRequest, deadline: float, *, configuration: int | None = None) -> int | None:
    """Blocks, half as long as those that count and of fewer steps, until their times stop falling and as many steps as
    requested are done. Returns how many steps make a block that is long enough, or None when the child is over."""
    began = time.perf_counter()
    long_enough_seconds = request.block_seconds / 2
    steps = fewest_warm_up_steps(request.block_steps)
    times: list[float] = []
    while True:
        block = child.run_block(_order(steps, _lead_in(request), configuration))
        if block is None:
            return None
        child.warm_up_blocks += 1
        if block.wall_seconds >= long_enough_seconds:
            times.append(block.wall_seconds / (block.samples or block.steps))
            if warmed_up(times) and child.steps_done >= request.warm_up_steps:
                break
        steps = enough(steps, block, long_enough_seconds)
        if time.perf_counter() - began > request.warm_up_limit_seconds:
            child.notes.append(f"The step time had not settled after {request.warm_up_limit_seconds:g} s of warm-up.")
            break
        if time.perf_counter() > deadline:
            break
    return max(request.block_steps, _steps_for(request.block_seconds, block))


def _order(steps: int, lead_in: int = 1, configuration: int | None = None) -> Proceed:
    """Run one block. The steps before it do not count: they may use batches that were prefetched during the pause."""
    return Proceed(steps=steps, lead_in=lead_in, configuration=configuration)


def _lead_in(request: TurnRequest) -> int:
    """A device that was released and taken again has to warm up."""
    return _STEPS_AFTER_A_SUSPENSION if request.suspended else 1


def enough(steps: int, block: Block, wanted_seconds: float) -> int:
    """How many steps the next block must have, after this one: more where it was too short, as a machine that was busy
    is not any more. Blocks may differ in length, since what is compared are seconds per sample."""
    return steps if block.wall_seconds >= wanted_seconds else max(steps, _steps_for(wanted_seconds, block))


def _steps_for(wanted_seconds: float, block: Block) -> int:
    """Steps for a block that takes so long with some margin, if steps go on as in this one."""
    step_seconds = max(block.wall_seconds / block.steps, wanted_seconds / _LONGEST_BLOCK_STEPS)
    return math.ceil(_MARGIN * wanted_seconds / step_seconds)


def alternate(start: Start, request: TurnRequest) -> tuple[tuple[Run, ...], Rounds]:
    """The same without ever having two arms alive: every arm is launched twice, in random order and then backwards,
    and has half of its blocks in each launch. Ends at the first arm that fails; a run is that of an arm's last launch.
    """
    arms, deadline = range(len(request.arms)), deadline_of(request)
    order = random.Random(request.order_seed).sample(arms, len(arms))
    runs: list[Run] = [_not_started(assignment) for assignment in request.arms]
    halves = (order, request.rounds - request.rounds // 2), (order[::-1], request.rounds // 2)
    rounds: list[list[Block]] = []
    for sequence, wanted in halves:
        columns: dict[int, list[Block]] = {}
        for index in sequence if wanted else ():
            if time.perf_counter() > deadline:
                return tuple(runs), seconds_per_sample(rounds, len(arms))
            runs[index], columns[index] = _blocks_alone(start, request, index, wanted, deadline)
            if not isinstance(runs[index].ending, (Completed, Stopped)):
                return tuple(runs), no_rounds(len(arms))
        rounds += [list(row) for row in zip(*(columns[index] for index in sorted(columns)), strict=False)]
    return tuple(runs), seconds_per_sample(rounds, len(arms))


def _blocks_alone(
    start: Start, request: TurnRequest, index: int, wanted: int, deadline: float
) -> tuple[Run, list[Block]]:
    """One launch of one arm, and its timed blocks, as many as are wanted or as it has steps for."""
    with start(request.arms[index]) as child:
        blocks: list[Block] = []
        steps = warm_up(child, request, deadline) if child.wait_ready() else None
        while steps is not None and len(blocks) < wanted and not child.over and time.perf_counter() <= deadline:
            block = child.run_block(_order(steps))
            if block is not None:
                blocks.append(block)
                steps = enough(steps, block, request.block_seconds)
        return child.finish(), blocks


def _not_started(assignment: Assignment) -> Run:
    note = "Not started, since another arm of its replicate failed."
    return Run(plan=assignment.plan, seed=assignment.seed, ending=Stopped(), notes=(note,))


def all_ended_well(runs: Sequence[Run]) -> bool:
    return all(isinstance(run.ending, (Completed, Stopped)) for run in runs)


def no_rounds(arms: int) -> Rounds:
    return ((),) * arms


def seconds_per_sample(rounds: Sequence[Sequence[Block]], arms: int) -> Rounds:
    """One row per arm. Where samples could not be counted, steps are: in all blocks, so that rows stay comparable."""
    counted = all(block.samples > 0 for row in rounds for block in row)
    return tuple(
        tuple(row[arm].wall_seconds / (row[arm].samples if counted else row[arm].steps) for row in rounds)
        for arm in range(arms)
    )
