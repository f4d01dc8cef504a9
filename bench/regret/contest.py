"""Measure a grid against the found plans: heats for all, a semifinal for the best, a final on fresh launches.

The best of many measurements is better than it is in truth. So the rival is chosen in the semifinal, and only the final
is reported. In every replicate the found plan runs next to its rivals, taking turns with them. A grid that is too large
to be measured is climbed: the plans next to the best one so far have heats too, until none of them is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import fmean

from hotlap.measure import speed
from hotlap.plan import EMPTY
from hotlap.records import Assignment, Plan, Replicate, SpeedComparison, TurnRequest, Workload
from hotlap.trial.executor import OneSlot

RIVALS_PER_SET = 4


class FinalFailed(Exception):
    """The final could not be measured; the text says how its arms ended."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How much is measured."""

    heat_rounds: int = 6
    climbs: int = 2
    semifinalists: int = 16
    semifinal_replicates: int = 2
    final_replicates: int = speed.HEADLINE_REPLICATES
    rounds: int = 12
    block_turns: int = 1


@dataclass(frozen=True, slots=True)
class Found:
    """A found plan in the final. ``ratio`` is its speed over that of the best other plan: above 1 the found plan is
    faster."""

    plan: Plan
    ratio: SpeedComparison
    speedup: SpeedComparison


@dataclass(frozen=True, slots=True)
class Result:
    """The final of every found plan, the reference of the heats first. ``heats`` are all rivals with their speed
    relative to the reference's in a single replicate, best first, and ``failed`` those that could not be run."""

    best: Plan
    best_speedup: SpeedComparison
    found: tuple[Found, ...]
    heats: tuple[tuple[Plan, float], ...]
    failed: tuple[Plan, ...]

    def of(self, plan: Plan) -> Found:
        """The final of that found plan."""
        return next(it for it in self.found if it.plan == plan)


@dataclass(slots=True)
class Contest:
    """All replicates of one workload; ``progress`` is called with each next part.

    ``found`` is the reference of heats and semifinal; ``others`` are found plans that are only part of the final. What
    is next to a plan in the grid, ``next_to`` says.
    """

    executor: OneSlot
    workload: Workload
    found: Plan
    terms: Terms
    progress: Callable[[str], None]
    others: Sequence[Plan] = ()
    next_to: Callable[[Plan], Sequence[Plan]] = lambda plan: ()
    _numbers: Iterator[int] = field(default_factory=count)

    def hold(self, rivals: Sequence[Plan]) -> Result:
        """Measure them all. Raises :class:`FinalFailed`, and :class:`ValueError` when there is no rival."""
        heats, failed = self._heats(rivals)
        for _ in range(self.terms.climbs):
            top = heats[0][0] if heats and heats[0][1] > 1 else self.found
            known = {frozenset(it.settings) for it in (self.found, *(plan for plan, _ in heats), *failed)}
            more = [it for it in self.next_to(top) if frozenset(it.settings) not in known]
            if not more:
                break
            climbed, spoilt = self._heats(more)
            heats, failed = sorted(heats + climbed, key=lambda it: -it[1]), failed + spoilt
        if not heats:
            raise ValueError("There is no other plan that could be run.")
        best = self._semifinal([plan for plan, _ in heats[: self.terms.semifinalists]])
        return self._final(best, heats, failed)

    def _heats(self, rivals: Sequence[Plan]) -> tuple[list[tuple[Plan, float]], list[Plan]]:
        seen: list[tuple[Plan, float]] = []
        failed: list[Plan] = []
        waiting = [list(rivals[i : i + RIVALS_PER_SET]) for i in range(0, len(rivals), RIVALS_PER_SET)]
        while waiting:
            group = waiting.pop(0)
            self.progress(f"heats: {len(seen) + len(failed)} of {len(rivals)} plans seen")
            speeds = self._relative_speeds(group, self.terms.heat_rounds)
            if speeds:
                seen += zip(group, speeds, strict=True)
            elif len(group) > 1:
                waiting[:0] = [[it] for it in group]  # one of them spoiled the replicate for all
            else:
                failed += group
        return sorted(seen, key=lambda it: -it[1]), failed

    def _semifinal(self, finalists: Sequence[Plan]) -> Plan:
        logs: list[list[float]] = [[] for _ in finalists]
        for number in range(self.terms.semifinal_replicates):
            self.progress(f"semifinal: replicate {number + 1} of {self.terms.semifinal_replicates}")
            for first in range(0, len(finalists), RIVALS_PER_SET):
                group = slice(first, first + RIVALS_PER_SET)
                speeds = self._relative_speeds(finalists[group], self.terms.rounds)
                for mine, it in zip(logs[group], speeds, strict=False):
                    mine.append(math.log(it))
        means = [fmean(it) if it else -math.inf for it in logs]
        return finalists[means.index(max(means))]

    def _final(self, best: Plan, heats: Sequence[tuple[Plan, float]], failed: Sequence[Plan]) -> Result:
        plans = [self.found, *(it for it in dict.fromkeys(self.others) if it != self.found)]
        arms = (best, best, EMPTY, EMPTY, *plans)
        rows: list[list[tuple[float, ...]]] = [[] for _ in arms]
        for number in range(self.terms.final_replicates):
            self.progress(f"final: replicate {number + 1} of {self.terms.final_replicates}")
            taken = self._take(arms, self.terms.rounds)
            if not all(taken.rounds):
                raise FinalFailed(f"A replicate of the final has no rounds; its arms ended as {_endings(taken)}.")
            for row, rounds in zip(rows, taken.rounds, strict=True):
                row.append(rounds)
        best_rows, best_again, untouched, untouched_again, *found_rows = rows
        return Result(
            best=best,
            best_speedup=speed.compare(untouched, untouched_again, best_rows),
            found=tuple(
                Found(
                    plan=plan,
                    ratio=speed.compare(best_rows, best_again, its),
                    speedup=speed.compare(untouched, untouched_again, its),
                )
                for plan, its in zip(plans, found_rows, strict=True)
            ),
            heats=tuple(heats),
            failed=tuple(failed),
        )

    def _relative_speeds(self, rivals: Sequence[Plan], rounds: int) -> list[float]:
        """The speed of each rival over the found plan's, from one replicate; empty where it has no rounds."""
        taken = self._take((self.found, *rivals), rounds)
        if not all(taken.rounds):
            return []
        reference = [math.log(it) for it in taken.rounds[0]]
        return [
            math.exp(fmean(one - math.log(other) for one, other in zip(reference, row, strict=True)))
            for row in taken.rounds[1:]
        ]

    def _take(self, arms: Sequence[Plan], rounds: int) -> Replicate:
        assignments = tuple(Assignment(workload=self.workload, plan=it) for it in arms)
        seed, turns = next(self._numbers), self.terms.block_turns
        return self.executor.take_turns(
            TurnRequest(arms=assignments, rounds=rounds, order_seed=seed, block_turns=turns)
        )


def _endings(taken: Replicate) -> list[str]:
    return [type(it.ending).__name__ for it in taken.runs]
