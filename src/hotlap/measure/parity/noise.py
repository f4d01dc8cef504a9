"""Does a script's own noise explain that an exact lever's losses differ? All sets of a trial answer together.

Kernels that add with atomics, and threads that race, make some runs of a script differ in a last digit and leave most
alike. Within one set the baseline's two runs may agree by luck while the third run, the lever's, is the one that
differs. Over all sets that luck has a probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

from hotlap.measure.parity.losses import difference, pair
from hotlap.records import Run

UNLIKELY = 0.05


def noise_explains(baselines: Sequence[Run], candidates: Sequence[Run]) -> bool:
    """Whether differences may be the script's own: two of its baselines differ, or so few candidates do that it is no
    surprise.

    If runs differ by chance, each is as likely to as any other. That those that do are all candidates then has the
    probability of Fisher's exact test (one-sided); below 5 % the lever is the cause. It is the cause as well where
    every candidate differs and no baseline.
    """
    if any(not _alike(one, other) for one, other in combinations(baselines, 2)):
        return True
    differing = sum(not any(_alike(it, baseline) for baseline in baselines) for it in candidates)
    if not baselines or differing == len(candidates):
        return False
    runs = len(baselines) + len(candidates)
    return comb(len(candidates), differing) / comb(runs, differing) >= UNLIKELY


def furthest(run: Run, others: Sequence[Run]) -> Run:
    """The one of ``others`` whose losses are furthest from the run's. Raises :class:`ValueError` if there is none."""
    return max(others, key=lambda it: difference(run, it) or 0.0)


def _alike(one: Run, other: Run) -> bool:
    """Whether all losses that both have agree to the last bit."""
    paired = pair(one, other)
    return paired.whole and paired.equal
