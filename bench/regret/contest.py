"""Measure a grid against the found plan: heats for all, a semifinal for the best, a final on fresh launches.

The best of many measurements is better than it is in truth. So the rival is chosen in the semifinal, and only the final
is reported. In every replicate the found plan runs next to its rivals, taking turns with them.
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
    semifinalists: int = 4
    semifinal_replicates: int = 3
    final_replicates: int = speed.HEADLINE_REPLICATES
    rounds: int = 12


@dataclass(frozen=True, slots=True)
class Result:
    """The final. ``ratio`` is the speed of the found plan over that of the best other plan: above 1 the found plan is
    faster. ``heats`` are all rivals with their speed relative to the found plan's in a single replicate, best first,
    and ``failed`` those that could not be run."""

    best: Plan
    ratio: SpeedComparison
    found_speedup: SpeedComparison
    best_speedup: SpeedComparison
    heats: tuple[tuple[Plan, float], ...]
    failed: tuple[Plan, ...]


@dataclass(slots=True)
class Contest:
    """All replicates of one workload; ``progress`` is called with each next part."""

    executor: OneSlot
    workload: Workload
    found: Plan
    terms: Terms
    progress: Callable[[str], None]
    _numbers: Iterator[int] = field(default_factory=count)

    def hold(self, rivals: Sequence[Plan]) -> Result:
        """Measure them all. Raises :class:`FinalFailed`, and :class:`ValueError` when there is no rival."""
        heats, failed = self._heats(rivals)
        if not heats:
            raise ValueError("There is no other plan that could be run.")
        finalists = [plan for plan, _ in heats[: self.terms.semifinalists]]
        best = self._semifinal(finalists)
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
            for mine, it in zip(logs, self._relative_speeds(finalists, self.terms.rounds), strict=False):
                mine.append(math.log(it))
        means = [fmean(it) if it else -math.inf for it in logs]
        return finalists[means.index(max(means))]

    def _final(self, best: Plan, heats: Sequence[tuple[Plan, float]], failed: Sequence[Plan]) -> Result:
        arms = (best, best, self.found, EMPTY, EMPTY)
        rows: list[list[tuple[float, ...]]] = [[] for _ in arms]
        for number in range(self.terms.final_replicates):
            self.progress(f"final: replicate {number + 1} of {self.terms.final_replicates}")
            taken = self._take(arms, self.terms.rounds)
            if not all(taken.rounds):
                raise FinalFailed(f"A replicate of the final has no rounds; its arms ended as {_endings(taken)}.")
            for row, rounds in zip(rows, taken.rounds, strict=True):
                row.append(rounds)
        best_rows, best_again, found_rows, untouched, untouched_again = rows
        return Result(
            best=best,
            ratio=speed.compare(best_rows, best_again, found_rows),
            found_speedup=speed.compare(untouched, untouched_again, found_rows),
            best_speedup=speed.compare(untouched, untouched_again, best_rows),
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
        request = TurnRequest(arms=assignments, rounds=rounds, order_seed=next(self._numbers))
        return self.executor.take_turns(request)


def _endings(taken: Replicate) -> list[str]:
    return [type(it.ending).__name__ for it in taken.runs]
