"""The quality of measurements on a device: the cost of the hooks, and the baseline against itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import permutations

from bench.gpu.naive import Naive, NotMeasured, Say
from bench.overhead import __main__ as overhead
from hotlap.measure import speed
from hotlap.records import Assignment, SpeedComparison, TurnRequest
from hotlap.trial.executor import OneSlot

KINDS = ("tiny", "many-layers")
LAUNCHES = 3
ARMS = 3
ROUNDS = 6
BLOCK_SECONDS = 0.2
FEWEST_REPLICATES, MOST_REPLICATES = 3, 8
PATIENCE_SECONDS = 60.0


def hook_cost(device: str, seconds: float, say: Say) -> list[dict[str, float | str | bool]]:
    """The cost of the hooks for each kind of model, as ``bench.overhead`` measures it. Raises :class:`NotMeasured`."""
    found: list[dict[str, float | str | bool]] = []
    end = time.monotonic() + seconds
    for kind in KINDS:
        began = time.monotonic()
        say(kind)
        try:
            found.append(overhead.measure(kind, LAUNCHES, device))
        except SystemExit as error:
            raise NotMeasured(str(error)) from error
        if time.monotonic() + (time.monotonic() - began) > end:
            break
    return found


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """The same code in all roles. ``claims`` counts the orders of the roles in which a difference was claimed; the
    orders share their replicates, so this is a count and no rate."""

    replicates: int
    orders: int
    claims: int
    disagreements: int
    comparison: SpeedComparison
    ratios: tuple[tuple[float, ...], ...]


def false_alarms(naive: Naive, executor: OneSlot, seconds: float, say: Say) -> FalseAlarms:
    """Take as many replicates of three equal arms as the time allows.

    Raises :class:`NotMeasured` when these are fewer than three, and :class:`HotlapError` as the executor does.
    """
    one = Assignment(
        workload=naive.workload, startup_limit_seconds=PATIENCE_SECONDS, block_limit_seconds=PATIENCE_SECONDS
    )
    arms: tuple[list[tuple[float, ...]], ...] = ([], [], [])
    end, longest = time.monotonic() + seconds, 0.0
    while len(arms[0]) < MOST_REPLICATES and (len(arms[0]) < FEWEST_REPLICATES or time.monotonic() + longest < end):
        began = time.monotonic()
        say(f"replicate {len(arms[0]) + 1}")
        request = TurnRequest(
            arms=(one,) * ARMS,
            rounds=ROUNDS,
            block_seconds=BLOCK_SECONDS,
            order_seed=len(arms[0]),
            warm_up_limit_seconds=PATIENCE_SECONDS / 4,
        )
        taken = executor.take_turns(request)
        if not all(taken.rounds):
            raise NotMeasured(f"Replicate {len(arms[0]) + 1} has no rounds; its arms ended as {_endings(taken.runs)}.")
        for arm, row in zip(arms, taken.rounds, strict=True):
            arm.append(row)
        longest = max(longest, time.monotonic() - began)
    compared = [speed.compare(*(arms[index] for index in order)) for order in permutations(range(ARMS))]
    return FalseAlarms(
        replicates=len(arms[0]),
        orders=len(compared),
        claims=sum(it.verdict in ("faster", "slower") for it in compared),
        disagreements=sum(not it.baseline_agrees for it in compared),
        comparison=compared[0],
        ratios=tuple(tuple(_mean(row) / _mean(arms[0][number]) for number, row in enumerate(arm)) for arm in arms[1:]),
    )


def _mean(row: tuple[float, ...]) -> float:
    return sum(row) / len(row)


def _endings(runs: tuple[object, ...]) -> str:
    return ", ".join(type(getattr(it, "ending", it)).__name__ for it in runs)
