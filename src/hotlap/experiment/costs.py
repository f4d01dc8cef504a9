"""Estimate what trials cost from those that ran, so that a budget can be kept.

All seconds come from the executor's answers and the journal, never from a clock here, so that a resumed search
estimates the same costs and makes the same decisions.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median, median_low

from hotlap.experiment.starts import Starts
from hotlap.measure.speed import fewest_warm_up_steps
from hotlap.records import Plan, Replicate, Run, Setting

FEWEST_ROUNDS = 8
FEWEST_ROUNDS_OF_A_SHORT_SCRIPT = 3
LAST_RESORT_ROUNDS, _OF_LONG_BLOCKS = 5, 3
_LONG_SECONDS = 1.0
"""Three blocks of this length measure for longer than five usual ones."""
USUAL_ROUNDS = 15
MOST_ROUNDS = 40
SETTLING_STEPS = 10
"""Seconds of a configuration before its first block in a process that switches; more if something compiles."""

BLOCK_SECONDS = 0.3
BLOCK_STEPS = 8
FEWEST_BLOCK_STEPS = 2

SHORTEST_STEP_SECONDS = 1e-6

_WARM_UP_BLOCKS = 5
"""How many blocks a warm-up usually has: at least four, each half as long as those that count."""
_WARM_UP_ROUNDS = 3
"""No warm-up is expected to take longer than so many rounds: calls that are alike settle soon."""
_FAR_SHORTER = 1.1
"""By less, two runs of the same steps may differ by chance, and what is expected too short takes time from a proof."""
_BLOCK_MARGIN = 1.25
_MORE_STEPS = 0.5
"""What each of several turns has more on average. A single turn has one step more at random as well, which the overhead
of its replicate covers."""
_USUAL_ARMS = 3
_CROWDING = 0.5
"""By what share launches start more slowly that start together and have a core each; by less where cores are left."""
_LOADING_SHARE = 0.25
"""Of the time in which a first run compiles: what a later one, which loads the code, is taken to need until that is
known. A small GPT on two cores needs 7 s of 26 s."""
_REMEMBERED_REPLICATES = 5
"""The median of this many last replicates counts: it ignores a disturbed one and follows a machine that changed."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a replicate is divided into blocks.

    A block is taken in ``block_turns`` turns. ``most_rounds`` is less than :data:`MOST_ROUNDS` for a script that ends
    soon, and ``most_steps`` is where it ends by itself (None: later than observed).
    """

    step_seconds: float
    outside_share: float = 0.0
    block_steps: int = BLOCK_STEPS
    block_seconds: float = BLOCK_SECONDS
    block_turns: int = 1
    most_rounds: int = MOST_ROUNDS
    most_steps: int | None = None

    @property
    def round_seconds(self) -> float:
        """Seconds of one arm for one round.

        They include the block, planned with a margin, the step before each turn that does not count, and what the
        script does between steps (evaluation and the like).
        """
        return self._seconds_of_block(self.block_steps, self.block_seconds, self.block_turns)

    @property
    def last_resort_rounds(self) -> int:
        """The fewest rounds of a claim, if no more fit: of long blocks, which slow steps make, fewer."""
        return _OF_LONG_BLOCKS if self.round_seconds >= _LONG_SECONDS else LAST_RESORT_ROUNDS

    @property
    def warm_up_seconds(self) -> float:
        """Seconds of one arm for the blocks before the first round."""
        block = self._seconds_of_block(fewest_warm_up_steps(self.block_steps), self.block_seconds / 2)
        return min(_WARM_UP_BLOCKS * block, _WARM_UP_ROUNDS * self.round_seconds)

    def halved(self) -> Shape:
        """Blocks half as long; the same if they are as short as can be."""
        if self.block_steps <= FEWEST_BLOCK_STEPS:
            return self
        return replace(
            self,
            block_steps=max(FEWEST_BLOCK_STEPS, self.block_steps // 2),
            block_seconds=self.block_seconds / 2,
            block_turns=max(1, self.block_turns // 2),
        )

    def _seconds_of_block(self, fewest_steps: int, seconds: float, turns: int = 1) -> float:
        steps = max(fewest_steps, math.ceil(_BLOCK_MARGIN * seconds / self.step_seconds))
        more = 1.0 if turns == 1 else turns * (1 + _MORE_STEPS)
        return (steps + more) * self.step_seconds * (1 + self.outside_share)


class Costs:
    """Estimates in seconds.

    ``overhead_seconds`` is what a launch of the baseline adds to a replicate besides its rounds: start-up and warm-up,
    less what arms do at the same time. ``shape`` says how blocks are cut; the time of a step comes from the first run,
    and is corrected by every replicate. ``slow_levers`` are those whose launches start slowly, since they compile, and
    ``beside_code`` those with which the compiler can load what it made without them.
    """

    def __init__(
        self,
        startup_seconds: float,
        shape: Shape,
        *,
        cores: int = 1,
        slow_levers: Collection[str] = (),
        beside_code: Collection[str] = (),
    ) -> None:
        self.shape = shape
        self.starts = Starts(startup_seconds, cores)
        self._slow_levers = slow_levers
        self._beside_code = beside_code
        self._cores = max(1, cores)
        self._overheads: deque[float] = deque(maxlen=_REMEMBERED_REPLICATES)
        self._step_seconds: deque[float] = deque([shape.step_seconds], maxlen=_REMEMBERED_REPLICATES)
        self._extra_startup = _by_lever()
        self._extra_of_first_runs = _by_lever()
        self._compile_seconds: dict[str, float] = {}
        self._compiled: set[frozenset[Setting]] = set()
        self._built: set[Plan] = set()
        self._speedups: dict[Plan, float] = {}

    @property
    def startup_seconds(self) -> float:
        """The start-up of one launch by itself."""
        return self.starts.seconds

    @property
    def overhead_seconds(self) -> float:
        """The median overhead of the last replicates; before the first one, start-up and warm-up."""
        if self._overheads:
            return median(self._overheads)
        return self._start_in_a_replicate + self.shape.warm_up_seconds

    @property
    def late_seconds(self) -> float:
        """By how much the overhead of the last replicate exceeds what is expected of the next one."""
        return max(0.0, self._overheads[-1] - self.overhead_seconds) if self._overheads else 0.0

    @property
    def _start_in_a_replicate(self) -> float:
        """The seconds that an arm's start adds to a replicate, since arms start at the same time."""
        return self._start_beside(_USUAL_ARMS)

    def _start_beside(self, launches: int) -> float:
        """The seconds that each of so many launches adds which start at the same time."""
        side_by_side = min(self._cores, launches)
        crowded = 1 + _CROWDING * side_by_side / self._cores
        return min(1.0, crowded / side_by_side) * self.startup_seconds

    def _scaled_overhead(self, overhead_seconds: float, was: Shape, becomes: Shape) -> float:
        """The overhead of a replicate of another shape: its warm-up scales with its blocks."""
        start = min(overhead_seconds, self._start_in_a_replicate)
        return start + (overhead_seconds - start) * becomes.warm_up_seconds / was.warm_up_seconds

    def of_replicate(self, plans: Sequence[Plan], rounds: int, shape: Shape | None = None) -> float:
        """One replicate with these arms and this ``shape`` (default: the usual one)."""
        cut = shape or self.shape
        overhead = self._scaled_overhead(self.overhead_seconds, self.shape, cut)
        launches = sum(overhead + self._extra(plan) for plan in plans)
        return launches + len(plans) * rounds * cut.round_seconds

    def of_replicates(
        self, plans: Sequence[Plan], count: int, rounds: int, *, at_once: int = 1, compiles_all: bool = True
    ) -> float:
        """So many replicates with these arms, of which ``at_once`` start together; with ``compiles_all`` everything is
        compiled in the first one."""
        groups = [min(at_once, count - first) for first in range(0, count, at_once)]
        saved = sum(self.starts.saved(it, len(plans)) for it in groups)
        one = self.of_replicate(plans, rounds)
        compiling = sum(self._extra(it, first_run=compiles_all) - self._extra(it) for it in plans)
        return max(len(groups) * one, count * one - saved) + max(0.0, compiling)

    def of_one_launch(self, plans: Sequence[Plan], rounds: int, shape: Shape | None = None) -> float:
        """One process that switches between these plans: one start, in which each lever starts once, and the rounds and
        settling of each plan."""
        cut = shape or self.shape
        overhead = self._scaled_overhead(self.overhead_seconds, self.shape, cut)
        extras = self._extra(Plan(settings=tuple(dict.fromkeys(it for plan in plans for it in plan.settings))))
        settling = SETTLING_STEPS * len(plans) * cut.step_seconds
        return overhead + extras + settling + len(plans) * rounds * cut.round_seconds

    def steps_of_one_launch(self, plans: Sequence[Plan], rounds: int, shape: Shape | None = None) -> int:
        """The steps that the script must have for that: more of a plan that is known to be faster, since blocks have a
        length in seconds. A plan that was not measured yet is taken to be as fast as the first one."""
        cut, first = shape or self.shape, self._speedups.get(plans[0], 1.0)
        speedups = [self._speedups.get(it, first) for it in plans]
        of_rounds = [math.ceil(cut.round_seconds * max(1.0, it) / cut.step_seconds) + 1 for it in speedups]
        return sum(SETTLING_STEPS + rounds * it for it in of_rounds) + _WARM_UP_ROUNDS * of_rounds[0]

    def of_launch(self, plan: Plan, steps: int) -> float:
        """One child with so many steps, which compiles everything."""
        return self.startup_seconds + self._extra(plan, first_run=True) + self.of_steps(steps)

    def of_launches(self, wanted: Sequence[tuple[Plan, int]], *, at_once: int) -> float:
        """Children with so many steps each, of which ``at_once`` run at the same time. They load what a process that
        switched has compiled."""
        together = min(at_once, len(wanted))
        start = self.startup_seconds if together < 2 else self._start_beside(together)
        extras = (self._extra(plan, first_run=self._code_of(plan) not in self._compiled) for plan, _ in wanted)
        return len(wanted) * start + sum(extras) + sum(self.of_steps(steps) for _, steps in wanted)

    def of_steps(self, steps: int) -> float:
        """So many steps of the baseline, with what the script does between them."""
        return steps * self.shape.step_seconds * (1 + self.shape.outside_share)

    def learn_replicate(
        self,
        turns: Replicate,
        plans: Sequence[Plan],
        elapsed_seconds: float,
        shape: Shape | None = None,
        *,
        started_together: int = 1,
        compiles_all: bool = False,
    ) -> None:
        """Correct the estimates by a completed replicate of that ``shape``, one of so many that started together.
        ``compiles_all``: its arms started as first runs do.

        Its rounds give the time of its steps, and so its overhead; the first run may have been disturbed. What an
        engine built, later launches only load.
        """
        cut = shape or self.shape
        self._learn_startup_of_all(plans, turns, started_together, compiles_all)
        for plan, run in zip(plans, turns.runs, strict=True):
            building = self._first_build_seconds(plan, run)
            elapsed_seconds = max(0.0, elapsed_seconds - building)
            later_seconds = run.startup_seconds - building - turns.runs[0].startup_seconds
            self._learn_startup(plan, later_seconds, plans[0], compiles_all)
        step_seconds = _step_seconds(turns, plans)
        own = cut if step_seconds is None else replace(cut, step_seconds=step_seconds)
        extras = sum(self._extra(plan, first_run=compiles_all) for plan in plans)
        rest = elapsed_seconds - extras - len(plans) * len(turns.rounds[0]) * own.round_seconds
        usual = replace(self.shape, step_seconds=own.step_seconds)
        self._overheads.append(self._scaled_overhead(max(0.0, rest / len(plans)), own, usual))
        if step_seconds is not None:
            self._step_seconds.append(step_seconds)
            self._learn_speedups(plans, turns)
            self.shape = replace(self.shape, step_seconds=median_low(self._step_seconds))

    def learn_watched(self, step_seconds: Sequence[float]) -> None:
        """Correct the time of a step by the unmodified script's steps while it was observed, which makes them longer:
        if they were far shorter all the same, something disturbed the run that the estimate is from."""
        if step_seconds and _FAR_SHORTER * median(step_seconds) < self.shape.step_seconds:
            self._step_seconds.append(max(SHORTEST_STEP_SECONDS, median(step_seconds)))
            self.shape = replace(self.shape, step_seconds=median_low(self._step_seconds))

    def learn_one_launch(self, plans: Sequence[Plan], turns: Replicate) -> None:
        """Remember what a process that switched between these plans compiled, and for how long, as first runs do."""
        for plan, run in zip(plans, turns.runs, strict=True):
            self._compiled.add(self._code_of(plan))
            slow = {it.lever for it in plan.settings if it.lever in self._slow_levers}
            for lever in slow:
                known = self._compile_seconds.get(lever, 0.0)
                self._compile_seconds[lever] = max(known, _seconds_besides_steps(run) / len(slow))

    def _code_of(self, plan: Plan) -> frozenset[Setting]:
        """What decides which code is compiled with this plan."""
        return frozenset(it for it in plan.settings if it.lever not in self._beside_code)

    def _learn_speedups(self, plans: Sequence[Plan], turns: Replicate) -> None:
        """Remember how many times as fast as the unmodified script, the first arm, each of the others was."""
        first = turns.rounds[0]
        for plan, own in zip(plans, turns.rounds, strict=True):
            if plan.settings:
                self._speedups[plan] = math.exp(fmean(map(math.log, first)) - fmean(map(math.log, own)))

    def _first_build_seconds(self, plan: Plan, run: Run) -> float:
        """The seconds for which the engine of a plan was built, in the first launch with it; 0 in any other."""
        if run.engine is None or plan in self._built:
            return 0.0
        self._built.add(plan)
        return run.engine.build_seconds

    def _extras(self, first_run: bool) -> defaultdict[str, deque[float]]:
        """The additional start-up time of levers, by their names: in a launch that compiles all, or in another one."""
        return self._extra_of_first_runs if first_run else self._extra_startup

    def _learn_startup(self, plan: Plan, more_seconds: float, than: Plan, first_run: bool) -> None:
        """Attribute a plan's additional start-up time to its newest lever, if the first arm lacks that lever."""
        if not plan.settings or any(it.lever == plan.settings[-1].lever for it in than.settings):
            return
        self._extras(first_run)[plan.settings[-1].lever].append(max(0.0, more_seconds))

    def _learn_startup_of_all(
        self, plans: Sequence[Plan], turns: Replicate, started_together: int, first_run: bool
    ) -> None:
        """Learn from the first arm how late all arms of a replicate start.

        If they all have levers, their additional time is attributed to those that start slowly, if there are any: no
        other launch is to be taken to start as late.
        """
        beside, share = (started_together * len(plans), 1 / len(plans)) if turns.interleaved else (1, 1.0)
        seconds, levers = turns.runs[0].startup_seconds, [it.lever for it in plans[0].settings]
        if not levers:
            self.starts.learn(beside, seconds)
            return
        slow = [it for it in levers if it in self._slow_levers] or levers
        more_seconds = share * max(0.0, seconds - self.starts.together(beside))
        for it in slow:
            self._extras(first_run)[it].append(more_seconds / len(slow))

    def _extra(self, plan: Plan, *, first_run: bool = False) -> float:
        return sum(self._extra_of_lever(it.lever, first_run) for it in plan.settings)

    def _extra_of_lever(self, lever: str, first_run: bool) -> float:
        """As known from launches of that kind, or else from those of the other one, or from a process that switched."""
        own, other = self._extras(first_run).get(lever), self._extras(not first_run).get(lever)
        if own:
            return median(own)
        known = median(other) if other else 0.0
        if lever not in self._slow_levers:
            return known
        if first_run:
            return max(known, self._compile_seconds.get(lever, 0.0))
        return _LOADING_SHARE * (known or self._compile_seconds.get(lever, 0.0))


def _by_lever() -> defaultdict[str, deque[float]]:
    return defaultdict(partial(deque, maxlen=_REMEMBERED_REPLICATES))


def _seconds_besides_steps(run: Run) -> float:
    """What the blocks of a configuration took besides steps as long as usual: in its first ones something compiles."""
    counted = [it for it in run.blocks if it.steps]
    if not counted:
        return 0.0
    usual = median(it.wall_seconds / it.steps for it in counted)
    return max(0.0, sum(it.wall_seconds - it.steps * usual for it in counted))


def _step_seconds(turns: Replicate, plans: Sequence[Plan]) -> float | None:
    """Seconds per step of the unmodified script in this replicate; None if absent, or without sample counts."""
    run = turns.runs[0]
    if plans[0].settings or not turns.rounds[0] or not run.steps.samples:
        return None
    seconds = median(turns.rounds[0]) * fmean(run.steps.samples)
    return seconds if seconds > 0 else None
