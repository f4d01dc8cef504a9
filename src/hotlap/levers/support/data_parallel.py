"""What levers for several processes have in common: when they apply, and arguments of the wrapper. Not a lever."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hotlap.levers.support.situations import bound_without
from hotlap.records import DataParallelFacts, Proof, Situation, Skipped, Value

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

MEBIBYTE = 2**20
LEAST_SAVED = 0.01
"""The smallest share of a process's peak that is worth a trial."""

DEFAULT_BUCKET_MEBIBYTES = 25
"""``bucket_cap_mb`` where the script leaves it open; the first bucket then holds one mebibyte (torch's documentation of
``DistributedDataParallel``)."""


def wrappers(situation: Situation) -> tuple[DataParallelFacts, ...]:
    """The ``DistributedDataParallel`` wrappers that exchange anything."""
    return tuple(it for it in situation.facts.data_parallel if it.processes > 1 and it.gradient_bytes)


def without_exchange(situation: Situation) -> Skipped | None:
    """The obstacle of every lever of this kind: no ``DistributedDataParallel`` over several processes."""
    if situation.facts.processes < 2:
        return Skipped(reason="One process trains: there is nothing to exchange.")
    if not wrappers(situation):
        return Skipped(reason="No DistributedDataParallel was observed that exchanges gradients.")
    return None


def bound_of_exchange(situation: Situation) -> float | None:
    """Gradients are exchanged in the backward pass: it cannot take less than no time."""
    return bound_without(situation, "backward")


def proof_of_order(situation: Situation) -> Proof:
    """The proof that another order of adding up gradients owes: a sum of two numbers has one order only."""
    return "exact" if all(it.processes == 2 for it in wrappers(situation)) else "rounding"


def too_little_saved(situation: Situation, saved_bytes: int) -> Skipped | None:
    """The obstacle of a lever that shares what every process holds, where that is hardly any of its memory.

    ``saved_bytes`` is what it frees on each process at most. None where the peak is unknown.
    """
    facts = situation.facts
    peak = situation.device_peak_bytes or situation.host_peak_bytes // max(1, facts.processes)
    if not peak or saved_bytes >= LEAST_SAVED * peak:
        return None
    return Skipped(
        reason=f"It could save {saved_bytes / MEBIBYTE:.1f} MiB per process at most, of {peak / MEBIBYTE:,.0f} MiB."
    )


def share_of_others(situation: Situation, held_bytes: int) -> int:
    """Of bytes that every process holds: those that each no longer holds once they are shared."""
    processes = max(1, situation.facts.processes)
    return held_bytes - -(-held_bytes // processes)


def buckets(gradient_bytes: int, cap_mebibytes: float | None) -> int:
    """How many buckets these gradients fill, by size alone; a bucket is never split within a weight."""
    if cap_mebibytes is None:
        rest = max(0, gradient_bytes - MEBIBYTE)
        return 1 + math.ceil(rest / (DEFAULT_BUCKET_MEBIBYTES * MEBIBYTE))
    return max(1, math.ceil(gradient_bytes / (cap_mebibytes * MEBIBYTE)))


def set_wrapper_arguments(hooks: Hooks, values: Mapping[str, Value]) -> None:
    """Give these arguments to each ``DistributedDataParallel`` when it is made."""

    def edit(arguments: dict[str, Any]) -> None:
        arguments.update(values)

    hooks.before_data_parallel.append(edit)
