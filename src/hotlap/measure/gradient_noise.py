"""The gradient noise scale: at which batch size the noise of a gradient is as large as the gradient itself.

McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", section 2 and appendix A.1: with trace S of the
covariance of a single sample's gradient, and true gradient G, the noise scale is S / |G|^2. Both have unbiased
estimates from the norms of gradients of batches and of their mean; they are averaged before they are divided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from hotlap.measure import student
from hotlap.records import GradientGroup, GradientNoise

CONFIDENCE = 0.90
FEWEST_GROUPS = 3


def noise_scale(groups: Sequence[GradientGroup]) -> GradientNoise | None:
    """The noise scale in samples, with Fieller's interval of a ratio of means; None with fewer than three groups.

    Where no signal is found in the noise, ``scale`` is None, as is the upper end of the interval.
    """
    usable = [it for it in groups if it.gradients > 1 and math.isfinite(it.mean_square) and it.samples > 0]
    if len(usable) < FEWEST_GROUPS:
        return None
    pairs = [_of_group(it) for it in usable]
    noise, signal = fmean(one for one, _ in pairs), fmean(other for _, other in pairs)
    if noise <= 0:
        return None
    low, high = _fieller(pairs)
    return GradientNoise(
        scale=noise / signal if signal > 0 else None,
        low=low,
        high=high,
        confidence=CONFIDENCE,
        samples=fmean(it.samples for it in usable),
        groups=len(usable),
        gradients=sum(it.gradients for it in usable),
    )


def _of_group(group: GradientGroup) -> tuple[float, float]:
    """Unbiased estimates of S, the noise of a single sample, and of the squared norm of the true gradient."""
    count = group.gradients
    noise_of_batch = (group.mean_square - group.square_of_mean) * count / (count - 1)
    return noise_of_batch * group.samples, group.square_of_mean - noise_of_batch / count


def _fieller(pairs: Sequence[tuple[float, float]]) -> tuple[float, float | None]:
    """The interval of the ratio of both means (Fieller 1954), cut at zero; None: it has no upper end."""
    count = len(pairs)
    one, other = fmean(a for a, _ in pairs), fmean(b for _, b in pairs)
    square = student.quantile((1 + CONFIDENCE) / 2, count - 1) ** 2 / (count * (count - 1))
    var_one = square * math.fsum((a - one) ** 2 for a, _ in pairs)
    var_other = square * math.fsum((b - other) ** 2 for _, b in pairs)
    both = square * math.fsum((a - one) * (b - other) for a, b in pairs)
    leading, middle, last = other**2 - var_other, one * other - both, one**2 - var_one
    within = middle**2 - leading * last
    if leading > 0:
        root = math.sqrt(max(0.0, within))
        return max(0.0, (middle - root) / leading), max(0.0, (middle + root) / leading)
    if within <= 0 or leading == 0:
        return 0.0, None
    return max(0.0, (middle - math.sqrt(within)) / leading), None
