"""Runs of the unmodified script that a study has made anyway: two of them show how far it repeats itself."""

from __future__ import annotations

from hotlap.measure.parity.losses import difference
from hotlap.measure.parity.repeatability import repeatability
from hotlap.records import Assignment, AwaitEvaluation, CollectEvidence, Observe, Plan, Run, Workload

_MOST = 4
"""The latest runs are enough, and each holds its losses."""


class UnmodifiedRuns:
    """The latest runs of a workload with one seed, whatever they were made for.

    Instruments that only observe do not change losses. Runs with other threads or another seed are not the same run.
    """

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload = workload
        self._seed = seed
        self._runs: list[tuple[Plan, Run]] = []

    def note(self, assignment: Assignment, run: Run, plan: Plan) -> None:
        """Keep the run if its assignment is the unmodified script's; ``plan`` is what that is run with."""
        observed = all(isinstance(it, (Observe, CollectEvidence, AwaitEvaluation)) for it in assignment.instruments)
        same = (assignment.plan, assignment.workload, assignment.seed) == (plan, self._workload, self._seed)
        if observed and same:
            self._runs = [*self._runs, (plan, run)][-_MOST:]

    def repeated(self, plan: Plan) -> tuple[Run, Run] | None:
        """Two runs with losses that can be compared and that differ little enough to judge a lever; else None."""
        runs = [run for with_plan, run in self._runs if with_plan == plan]
        for index, first in enumerate(runs):
            for second in runs[index + 1 :]:
                if difference(first, second) is not None:
                    return (first, second) if repeatability(first, second).passed else None
        return None
