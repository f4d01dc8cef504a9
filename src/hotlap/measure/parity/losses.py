"""The losses of two runs side by side, and one number for how far apart they run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from hotlap.records import Run, Steps

EMA_FACTOR = 0.1
FEWEST_STEPS = 20
"""With fewer losses than this, two time constants of the moving average, a comparison means nothing."""
INTENDED_STEPS = 300

_SCALE_FLOOR = 0.01


@dataclass(frozen=True, slots=True)
class PairedLosses:
    """Losses at the steps that both runs reached and where the first one's was read.

    ``unread`` and ``not_finite`` are those of these steps at which the second run's loss could not be read, or was NaN
    or infinite; ``first`` and ``second`` leave them out.
    """

    first: tuple[float, ...]
    second: tuple[float, ...]
    unread: tuple[int, ...]
    not_finite: tuple[int, ...]

    @property
    def steps(self) -> int:
        """How many losses could be compared."""
        return len(self.first)

    @property
    def whole(self) -> bool:
        """Whether the second run has a loss wherever the first has one."""
        return not self.unread and not self.not_finite

    @property
    def equal(self) -> bool:
        """Whether all compared losses agree to the last bit."""
        return self.first == self.second


def pair(first: Run, second: Run) -> PairedLosses:
    """The losses of two runs, step by step, as far as the shorter one goes."""
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
    """D: the largest relative difference between the moving averages of both losses; None with nothing to compare or
    when it is not finite.

    The difference is relative to the moving average of the first run's absolute loss. Two cases need care, or the
    division would blow rounding up to a finding: a loss that has fallen below 1 % of its largest average is held
    against that 1 %, and a loss that changes its sign (GANs, policy gradients) against its mean absolute value.
    """
    if not paired.first:
        return None
    differences = moving_average([other - one for one, other in zip(paired.first, paired.second, strict=True)])
    pairs = zip(differences, loss_scales(paired.first), strict=True)
    ratios = [abs(difference) / scale if scale else math.inf for difference, scale in pairs if difference]
    largest = max(ratios, default=0.0)
    return largest if math.isfinite(largest) else None


def difference(first: Run, second: Run) -> float | None:
    """D between two runs, or None where it cannot be had over at least :data:`FEWEST_STEPS` steps without a gap."""
    paired = pair(first, second)
    return distance(paired) if paired.whole and paired.steps >= FEWEST_STEPS else None


def percent(share: float) -> str:
    """A share for a person: ``0.031 %``."""
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
    """What a difference at each step is held against: see :func:`distance`."""
    sizes = moving_average([abs(loss) for loss in losses])
    if min(losses) < 0 < max(losses):
        return [fmean(abs(loss) for loss in losses)] * len(losses)
    floor = _SCALE_FLOOR * max(sizes)
    return [max(size, floor) for size in sizes]
