"""Arms that share one process: it switches levers between blocks, so that every arm has the same start, data and
memory.

A crossover design: each configuration follows each other one in random order, and every round has a block of each.
Weights go on changing, so seconds are compared and nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hotlap.records import (
    Assignment,
    Block,
    CompileReport,
    Plan,
    Proceed,
    Run,
    Steps,
    Stopped,
    SwitchLevers,
    TurnRequest,
)
from hotlap.trial.child import Child
from hotlap.trial.turns import (
    Rounds,
    RoundsInTurns,
    all_ended_well,
    deadline_of,
    no_rounds,
    seconds_per_sample,
    warm_up,
)

_FEWEST_STEPS = 4
"""Timed one by one, to judge when a configuration has settled and how many steps a switch affects."""
_SETTLED = 1.25
"""Steps are alike whose times differ by no more than this factor."""


def shared_assignment(request: TurnRequest) -> Assignment:
    """The first arm's, with what the others have besides as configurations.

    Raises :class:`ValueError` for arms that differ in more than their plans.
    """
    first = request.arms[0]
    if any(msgspec.structs.replace(it, plan=first.plan) != first for it in request.arms):
        raise ValueError("Arms that share a launch differ in their plans alone.")
    more = tuple(
        Plan(settings=tuple(it for it in arm.plan.settings if it not in first.plan.settings)) for arm in request.arms
    )
    return msgspec.structs.replace(first, instruments=(*first.instruments, SwitchLevers(configurations=more)))


def switch_turns(child: Child, request: TurnRequest) -> tuple[tuple[Run, ...], Rounds]:
    """Let the configurations of a child that was just started take turns, and end it. There is a run for each: that of
    the process, with the configuration's plan and blocks, and how it ended for the one at whose turn it failed.

    The rounds are those that all went through; they end before the first loss that is not finite. The run of the
    configuration that it came from, if that is known, has it as its only ``steps.not_finite``.
    """
    turns = _Turns(child, request)
    turns.take()
    return turns.finish()


@dataclass(frozen=True, slots=True)
class _Round:
    """The blocks by configuration, in the order of the arms, and how many steps the process had done after them."""

    blocks: list[Block]
    steps_done: int


class _Turns:
    def __init__(self, child: Child, request: TurnRequest) -> None:
        self._child = child
        self._request = request
        self._arms = len(request.arms)
        self._at_turn = 0
        self._rounds: list[_Round] = []
        self._own_blocks: list[list[Block]] = [[] for _ in request.arms]
        self._turns: list[tuple[int, int]] = []
        """Whose turn it was, and how many steps the process had done after it."""

    def take(self) -> None:
        """Warm up, let every configuration settle, measure how long a switch affects steps, then time round after
        round."""
        child, request, deadline = self._child, self._request, deadline_of(self._request)
        if not child.wait_ready() or warm_up(child, request, deadline, configuration=0) is None:
            return
        steps: list[int] = []
        for arm in range(self._arms):
            step_seconds = None if time.perf_counter() > deadline else self._settle(arm, deadline)
            if step_seconds is None:
                return
            steps.append(max(request.block_steps, math.ceil(request.block_seconds / step_seconds)))
        lead_in = self._steps_that_feel_a_switch()
        if not lead_in:
            return
        # A switch that more than one step feels is made less often.
        request = msgspec.structs.replace(request, block_turns=max(1, request.block_turns // lead_in))
        rounds = RoundsInTurns(request, steps, lambda arm, it: self._block(arm, Proceed(steps=it, lead_in=lead_in)))
        for blocks in rounds.until(deadline, lead_in):
            self._rounds.append(_Round(blocks, child.steps_done))

    def _block(self, arm: int, order: Proceed) -> Block | None:
        self._at_turn = arm
        block = self._child.run_block(msgspec.structs.replace(order, configuration=arm))
        if block is not None:
            self._own_blocks[arm].append(block)
            if self._turns and self._turns[-1][0] == arm:
                self._turns.pop()
            self._turns.append((arm, self._child.steps_done))
        return block

    def _single_steps(self, arm: int, count: int) -> list[float] | None:
        """Seconds per sample of so many steps, each timed by itself; None where the child is over."""
        found: list[float] = []
        for _ in range(count):
            block = self._block(arm, Proceed(steps=1))
            if block is None:
                return None
            found.append(block.wall_seconds / max(1, block.samples))
        return found

    def _settle(self, arm: int, deadline: float) -> float | None:
        """Take steps until what happens once is over (compiling, tuning, filling caches); the seconds of a step then,
        or None where the child is over."""
        began = time.perf_counter()
        recent: list[float] = []
        while len(recent) < _FEWEST_STEPS or not _alike(recent[-_FEWEST_STEPS + 1 :]):
            block = self._block(arm, Proceed(steps=1))
            if block is None:
                return None
            recent.append(block.wall_seconds)
            now = time.perf_counter()
            if now - began > self._request.warm_up_limit_seconds or now > deadline:
                break
        return max(min(recent), 1e-9)

    def _steps_that_feel_a_switch(self) -> int:
        """The most steps after a switch that any configuration takes to settle, one at least; 0 where the child is
        over."""
        most = 1
        for arm in range(self._arms):
            seconds = self._single_steps(arm, _FEWEST_STEPS)
            if seconds is None:
                return 0
            usual = min(seconds[_FEWEST_STEPS // 2 :])
            felt = [number for number, it in enumerate(seconds[: _FEWEST_STEPS // 2], start=1) if it > _SETTLED * usual]
            most = max(most, *felt, 0)
        return most

    def finish(self) -> tuple[tuple[Run, ...], Rounds]:
        """The run of each arm, and its rows."""
        run = self._child.finish()
        diverged = self._arm_that_diverged(run)
        runs = tuple(self._run_of(arm, run, diverged) for arm in range(self._arms))
        if not all_ended_well(runs):
            return runs, no_rounds(self._arms)
        finite = min(run.steps.not_finite, default=len(run.steps.wall_seconds))
        whole = [it.blocks for it in self._rounds if it.steps_done <= finite]
        return runs, seconds_per_sample(whole, self._arms)

    def _arm_that_diverged(self, run: Run) -> int | None:
        """The configuration of the first loss that is not finite; None without one, or where that is not known.

        In the first step of a turn the weights are those that the configuration before it left.
        """
        first, begin = min(run.steps.not_finite, default=None), 0
        for arm, end in self._turns:
            if first is not None and begin < first < end:
                return arm
            begin = end
        return None

    def _run_of(self, arm: int, run: Run, diverged: int | None) -> Run:
        plan, blocks = self._request.arms[arm].plan, tuple(self._own_blocks[arm])
        # The steps and compilations of a process with many configurations do not describe any one of them.
        steps = Steps(not_finite=(min(run.steps.not_finite),)) if arm == diverged else Steps()
        peaks = [it.device_peak_bytes for it in blocks if it.device_peak_bytes is not None]
        mine = msgspec.structs.replace(
            run,
            plan=plan,
            blocks=blocks,
            warm_up_blocks=0,
            steps=steps,
            compile=CompileReport(),
            device_peak_bytes=max(peaks, default=run.device_peak_bytes),
        )
        if all_ended_well([run]) or arm == self._at_turn:
            return mine
        return msgspec.structs.replace(mine, ending=Stopped())


def _alike(seconds: Sequence[float]) -> bool:
    return max(seconds) <= _SETTLED * min(seconds)
