"""The same on a real machine: the baseline in all three roles, through the real executor."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path
from zlib import crc32

from bench.aa.noise import Arm
from bench.aa.procedure import LAST_ANALYSIS, PROCEDURES, Decision, Tally, tally
from bench.pieces import check_time, piece
from hotlap.records import Assignment, TurnRequest, Workload
from hotlap.trial.executor import OneSlot

ROLES = 3


class SetFailed(Exception):
    """A replicate came back without rounds; the text says how its arms ended."""


def workload(script: Path, arguments: tuple[str, ...]) -> Workload:
    """The script under this interpreter, run from its own folder."""
    path = script.resolve()
    return Workload(
        kind="script", target=str(path), arguments=arguments, directory=str(path.parent), python=sys.executable
    )


def measure(
    executor: OneSlot,
    of: Workload,
    *,
    replicates: int,
    rounds: int,
    progress: Callable[[int], None],
    pieces: Path | None = None,
    until: float | None = None,
) -> tuple[Arm, Arm, Arm]:
    """Take that many replicates of three equal arms; those that are among the pieces are not taken again.

    Raises :class:`SetFailed` when a script ends too early, and :class:`TimeIsUp` after ``until``.
    """
    arms: tuple[Arm, Arm, Arm] = ([], [], [])
    words = " ".join((of.target, *of.arguments, str(rounds)))
    for number in range(replicates):
        name = f"real-{Path(of.target).stem}-{crc32(words.encode()):08x}-{number + 1}"
        taken = piece(pieces, name, list[list[float]], partial(_replicate, executor, of, rounds, number, until))
        for arm, row in zip(arms, taken, strict=True):
            arm.append(row)
        progress(number + 1)
    return arms


def _replicate(executor: OneSlot, of: Workload, rounds: int, number: int, until: float | None) -> list[list[float]]:
    check_time(until)
    request = TurnRequest(arms=(Assignment(workload=of),) * ROLES, rounds=rounds, order_seed=number)
    taken = executor.take_turns(request)
    if not all(taken.rounds):
        raise SetFailed(f"Replicate {number + 1} has no rounds; its arms ended as {[it.ending for it in taken.runs]}.")
    return [list(row) for row in taken.rounds]


def studies_of(arms: tuple[Arm, Arm, Arm], *, resamples: int, seed: int, delta: float) -> list[Tally]:
    """Return the verdicts over many studies drawn from the replicates.

    They are drawn without replacement, and roles are exchanged at random in each: all arms run the same code, so every
    such study is valid. They share replicates, so the interval of the rate is too narrow when there are few.

    Raises :class:`ValueError` with fewer replicates than the last analysis needs.
    """
    count = len(arms[0])
    if count < LAST_ANALYSIS:
        raise ValueError(f"A study needs {LAST_ANALYSIS} replicates; there are {count}.")
    source = random.Random(seed)
    orders = list(permutations(range(ROLES)))
    decisions: dict[str, list[Decision]] = {name: [] for name in PROCEDURES}
    for _ in range(resamples):
        chosen = source.sample(range(count), LAST_ANALYSIS)
        roles = [source.choice(orders) for _ in chosen]
        baseline, repeat, candidate = (
            [arms[role[arm]][index] for index, role in zip(chosen, roles, strict=True)] for arm in range(ROLES)
        )
        for name, study in PROCEDURES.items():
            decisions[name].append(study(baseline, repeat, candidate, delta=delta))
    return [tally(f"{count} real replicates", name, 1.0, it) for name, it in decisions.items()]
