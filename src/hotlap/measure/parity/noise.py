"""Decide whether a script's own noise explains that the losses of an exact lever differ, over all replicates.

Kernels that use atomic additions, and race conditions between threads, make a few runs of a script differ in the last
digit. Within one replicate the two runs of the baseline may agree by luck while the lever's run is the one that
differs. Over all replicates the probability of that luck can be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

from hotlap.measure.parity.losses import difference, pair
from hotlap.records import Run

UNLIKELY = 0.05


def noise_explains(baselines: Sequence[Run], candidates: Sequence[Run]) -> bool:
    """Whether the script's own noise explains the differences: two of its baselines differ, or few candidates do.

    If runs differ by chance, each is equally likely to differ. Fisher's exact test (one-sided) gives the probability
    that all runs that differ are candidates; below 5 % the lever is the cause. So it is if every candidate differs and
    no baseline does.
    """
    if any(not _alike(one, other) for one, other in combinations(baselines, 2)):
        return True
    differing = sum(not any(_alike(it, baseline) for baseline in baselines) for it in candidates)
    if not baselines or differing == len(candidates):
        return False
    runs = len(baselines) + len(candidates)
    return comb(len(candidates), differing) / comb(runs, differing) >= UNLIKELY


def furthest(run: Run, others: Sequence[Run]) -> Run:
    """The run of ``others`` with the most distant losses. Raises :class:`ValueError` if there is none."""
    return max(others, key=lambda it: difference(run, it) or 0.0)


def _alike(one: Run, other: Run) -> bool:
    """Whether all losses that both runs have are bitwise identical."""
    paired = pair(one, other)
    return paired.whole and paired.equal
