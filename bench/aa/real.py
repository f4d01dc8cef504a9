"""The same question put to a real machine: the baseline in all three roles, through the real executor."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

from bench.aa.noise import Arm
from bench.aa.procedure import LAST_LOOK, PROCEDURES, Decision, Tally, tally
from hotlap.records import Assignment, TurnRequest, Workload
from hotlap.trial.executor import OneSlot

ROLES = 3


class SetFailed(Exception):
    """A set came back without rounds; the text says how its arms ended."""


def workload(script: Path, arguments: tuple[str, ...]) -> Workload:
    """The script under this interpreter, run from its own folder."""
    path = script.resolve()
    return Workload(
        kind="script", target=str(path), arguments=arguments, directory=str(path.parent), python=sys.executable
    )


def measure(
    executor: OneSlot, of: Workload, *, sets: int, rounds: int, progress: Callable[[int], None]
) -> tuple[Arm, Arm, Arm]:
    """Take that many sets of three equal arms. Raises :class:`SetFailed` when a script ends too early."""
    arms: tuple[Arm, Arm, Arm] = ([], [], [])
    for number in range(sets):
        request = TurnRequest(arms=(Assignment(workload=of),) * ROLES, rounds=rounds, order_seed=number)
        taken = executor.take_turns(request)
        if not all(taken.rounds):
            raise SetFailed(f"Set {number + 1} has no rounds; its arms ended as {[it.ending for it in taken.runs]}.")
        for arm, row in zip(arms, taken.rounds, strict=True):
            arm.append(list(row))
        progress(number + 1)
    return arms


def studies_of(arms: tuple[Arm, Arm, Arm], *, resamples: int, seed: int, delta: float) -> list[Tally]:
    """Verdicts over many studies drawn from the sets without replacement, roles exchanged at random in each set: all
    arms are the same code, so every such study is an honest one. They share sets, so that the interval of the rate
    understates its uncertainty when there are few.

    Raises :class:`ValueError` with fewer sets than the last look needs.
    """
    count = len(arms[0])
    if count < LAST_LOOK:
        raise ValueError(f"A study needs {LAST_LOOK} sets; there are {count}.")
    source = random.Random(seed)
    orders = list(permutations(range(ROLES)))
    decisions: dict[str, list[Decision]] = {name: [] for name in PROCEDURES}
    for _ in range(resamples):
        chosen = source.sample(range(count), LAST_LOOK)
        roles = [source.choice(orders) for _ in chosen]
        baseline, repeat, candidate = (
            [arms[role[arm]][index] for index, role in zip(chosen, roles, strict=True)] for arm in range(ROLES)
        )
        for name, study in PROCEDURES.items():
            decisions[name].append(study(baseline, repeat, candidate, delta=delta))
    return [tally(f"{count} real sets", name, 1.0, it) for name, it in decisions.items()]
