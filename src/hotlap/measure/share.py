"""A share of successes, with its interval."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

from hotlap.records import Estimate

CONFIDENCE: Final = 0.95


def share_with_interval(successes: int, count: int) -> Estimate:
    """A share with Wilson's interval at 95 % (Wilson, JASA 22, 1927)."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    value = successes / count
    centre = (value + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(value * (1 - value) / count + z * z / (4 * count * count))
    return Estimate(value=value, low=min(value, max(0.0, centre - half)), high=max(value, min(1.0, centre + half)))
