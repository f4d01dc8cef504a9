"""The losses of two runs, paired by step, and their distance as one number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from hotlap.records import Run, Steps

EMA_FACTOR = 0.1
FEWEST_STEPS = 20
"""The fewest losses for a meaningful comparison: two time constants of the moving average."""
INTENDED_STEPS = 300

_SCALE_FLOOR = 0.01


@dataclass(frozen=True, slots=True)
class PairedLosses:
    """Losses at the steps that both runs reached and where the loss of the first run was read.

    At the steps in ``unread`` and ``not_finite`` the loss of the second run could not be read, or was NaN or infinite;
    ``first`` and ``second`` leave these steps out.
    """

    first: tuple[float, ...]
    second: tuple[float, ...]
    unread: tuple[int, ...]
    not_finite: tuple[int, ...]

    @property
    def steps(self) -> int:
        """The number of losses that could be compared."""
        return len(self.first)

    @property
    def whole(self) -> bool:
        """Whether the second run has a loss wherever the first has one."""
        return not self.unread and not self.not_finite

    @property
    def equal(self) -> bool:
        """Whether all compared losses are bitwise identical."""
        return self.first == self.second


def pair(first: Run, second: Run) -> PairedLosses:
    """Pair the losses of two runs step by step, up to the end of the shorter one."""
    ones, others = _readable(first.steps), _readable(second.steps)
    diverged = set(second.steps.not_finite)
    rows = [row for row, (one, _) in enumerate(zip(ones, others, strict=False)) if one is not None]
    both = [(one, other) for one, other in zip(ones, others, strict=False) if one is not None and other is not None]
    missing = [row for row in rows if others[row] is None]
    return PairedLosses(
        first=tuple(one for one, _ in both),
        second=tuple(other for _, other in both),
        unread=tuple(row for row in missing if not _diverged(second.steps, row, diverged)),
        not_finite=tuple(row for row in missing if _diverged(second.steps, row, diverged)),
    )


def moving_average(losses: Sequence[float]) -> list[float]:
    """The exponential moving average with factor :data:`EMA_FACTOR`, started at the first loss."""
    averages: list[float] = []
    for loss in losses:
        averages.append(loss if not averages else averages[-1] + EMA_FACTOR * (loss - averages[-1]))
    return averages


def distance(paired: PairedLosses) -> float | None:
    """D: the largest relative difference between the moving averages of both losses.

    None if there is nothing to compare, or if it is not finite.

    The difference is relative to the moving average of the first run's absolute loss. Two cases must not turn rounding
    into a difference: for a loss below 1 % of its largest average the divisor is that 1 %, and for a loss that changes
    its sign (GANs, policy gradients) it is the mean absolute value.
    """
    if not paired.first:
        return None
    differences = moving_average([other - one for one, other in zip(paired.first, paired.second, strict=True)])
    pairs = zip(differences, loss_scales(paired.first), strict=True)
    ratios = [abs(difference) / scale if scale else math.inf for difference, scale in pairs if difference]
    largest = max(ratios, default=0.0)
    return largest if math.isfinite(largest) else None


def difference(first: Run, second: Run) -> float | None:
    """D between two runs, or None with fewer than :data:`FEWEST_STEPS` steps or a gap."""
    paired = pair(first, second)
    return distance(paired) if paired.whole and paired.steps >= FEWEST_STEPS else None


def percent(share: float) -> str:
    """A share as text: ``0.031 %``, ``260 %``."""
    if share >= 1:
        return f"{100 * share:,.0f} %"
    return f"{100 * share:.2g} %" if share >= 1e-5 or share == 0 else f"{100 * share:.0e} %"


def _readable(steps: Steps) -> list[float | None]:
    diverged = set(steps.not_finite)
    return [
        loss if loss is not None and math.isfinite(loss) and row not in diverged else None
        for row, loss in enumerate(steps.loss)
    ]


def _diverged(steps: Steps, row: int, diverged: set[int]) -> bool:
    return row in diverged or steps.loss[row] is not None


def loss_scales(losses: Sequence[float]) -> list[float]:
    """The divisor of the difference at each step: see :func:`distance`."""
    sizes = moving_average([abs(loss) for loss in losses])
    if min(losses) < 0 < max(losses):
        return [fmean(abs(loss) for loss in losses)] * len(losses)
    floor = _SCALE_FLOOR * max(sizes)
    return [max(size, floor) for size in sizes]
