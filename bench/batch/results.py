"""What was measured of a script so far, and what follows from it."""

from __future__ import annotations

import math
from statistics import fmean

import msgspec

from hotlap.measure.levels import geometric
from hotlap.records import BatchSearch, Estimate, ScriptFacts

SEARCH_SECONDS = 300.0
MOST_STEP_SECONDS = 1.0
SWEEP_REPLICATES = 2
SWEEP_SECONDS = 30.0
"""A sweep has another replicate if those before took less than this."""

CONFIRMING_REPLICATES = 5
SHARED_ROUNDS = 24
SHARED_LAUNCHES = 5
"""Launches in which both sizes take turns, where the replicates leave the result open."""

CONFIDENCE = 0.975
"""Of the interval at each of the two looks at the result, so that it is 95 % for both together."""

PROMISED = 0.03


class Progress(msgspec.Struct, kw_only=True):
    """What was measured of one script so far.

    ``search`` is None before the search, and ``trouble`` says why it found no knee. ``swept`` has for each replicate
    the logarithm of each size's throughput as a ratio to the own size's, ``compared`` for each replicate that of the
    knee's seconds per sample as a ratio to the rival's, and ``shared`` the same for each launch in which both took
    turns. Launches are processes of the script, ``sweep_launches`` those of sweep and comparison; ``disturbed`` counts
    their replicates that other processes disturbed.
    """

    script: str
    search: BatchSearch | None = None
    facts: ScriptFacts = ScriptFacts()
    trouble: str = ""
    step_seconds: float = 0.0
    search_seconds: float = 0.0
    failed: tuple[int, ...] = ()
    swept: tuple[dict[int, float], ...] = ()
    swept_seconds: float = 0.0
    compared: tuple[float, ...] = ()
    shared: tuple[float, ...] = ()
    sweep_launches: int = 0
    disturbed: int = 0


class Swept(msgspec.Struct, kw_only=True, frozen=True):
    """A size of the sweep, with its throughput as a ratio to that of the script's own size."""

    size: int
    rate: float


def rates_of(progress: Progress) -> tuple[Swept, ...]:
    """The sizes that ran in every replicate of the sweep, in ascending order."""
    sizes = set.intersection(*(set(it) for it in progress.swept)) if progress.swept else set()
    mean = {size: fmean(it[size] for it in progress.swept) for size in sizes}
    return tuple(Swept(size=it, rate=math.exp(mean[it])) for it in sorted(sizes))


def rival_of(progress: Progress) -> int:
    """The fastest size of the sweep other than the knee; 0 if there is none."""
    knee = progress.search.knee if progress.search is not None else 0
    others = [it for it in rates_of(progress) if it.size != knee]
    return max(others, key=lambda it: it.rate).size if others else 0


def slower_of(progress: Progress) -> Estimate | None:
    """The seconds per sample of the knee as a ratio to the rival's: above 1 the knee is slower. None if unfinished.

    Launches in which both have taken turns count where those of either size leave the result open.
    """
    if len(progress.compared) < CONFIRMING_REPLICATES:
        return None
    shared = progress.shared if len(progress.shared) == SHARED_LAUNCHES else ()
    return geometric((*progress.compared, *shared), "x", CONFIDENCE)


def is_open(progress: Progress) -> bool:
    """Whether launches of either size have left the result open, and both sizes have not taken turns enough."""
    return verdict_of(slower_of(progress)) == "open" and len(progress.shared) < SHARED_LAUNCHES


def verdict_of(slower: Estimate | None) -> str:
    """Whether the knee's throughput is within what the search promises of the rival's."""
    if slower is None:
        return ""
    most = 1 / (1 - PROMISED)
    return "kept" if slower.high <= most else "broken" if slower.low > most else "open"
