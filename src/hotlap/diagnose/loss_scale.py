"""What a gradient scaler did over the observed steps: its scale, the steps that it skipped, and the overflow rate.

Steps before the scale is found do not count: a scaler begins with a scale that is too large, and halves it until the
gradients fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hotlap.evidence import Numbers

CALM_STEPS = 10
"""The scale counts as found after this many steps without a skip."""

LONGEST_SEARCH = 30
"""Steps after which a scaler has found its scale: by then it has been halved to a billionth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleHistory:
    """``scales`` has one row per observed step, and ``skipped`` how many steps were skipped in that row.

    ``found`` is the row at which the scale was found; ``tried`` counts the steps after it, the skipped ones included.
    ``rises`` counts the later rows before which the scale rose: it is larger than in the row before, or it is the same
    although a skipped step has lowered it.
    """

    scales: tuple[float, ...]
    skipped: tuple[int, ...]
    found: int
    tried: int
    rises: int

    @property
    def skipped_since(self) -> int:
        """How many steps were skipped after the scale was found."""
        return sum(self.skipped[self.found + 1 :])

    @property
    def overflow_rate(self) -> float:
        """The share of steps skipped among those tried after the scale was found."""
        return self.skipped_since / self.tried if self.tried else 0.0

    @property
    def sank_by(self) -> float:
        """By what factor the scale came down after it was found, without having risen; 1 where it rose or stayed."""
        if self.rises or not self.scales or self.scales[-1] <= 0:
            return 1.0
        return self.scales[self.found] / self.scales[-1]


def scale_history(numbers: Numbers) -> ScaleHistory | None:
    """The history of the scale; None where no scaler was seen."""
    scales = numbers.scaler_scales
    if not scales:
        return None
    attempts = _attempts(numbers)
    skipped = _skipped(scales, attempts)
    found = 0
    for row, skips in enumerate((*skipped, 1)):
        if skips and (row - found > CALM_STEPS or row > LONGEST_SEARCH):
            break
        found = row if skips else found
    found = min(found, len(scales) - 1)
    later = zip(pairwise(scales[found:]), skipped[found + 1 :], strict=True)
    return ScaleHistory(
        scales=scales,
        skipped=skipped,
        found=found,
        tried=sum(max(1, it) for it in attempts[found + 1 :]),
        rises=sum(after > before or (after == before and skips > 0) for (before, after), skips in later),
    )


def _attempts(numbers: Numbers) -> tuple[int, ...]:
    known = numbers.scaler_attempts
    return known if len(known) == len(numbers.scaler_scales) else (1,) * len(numbers.scaler_scales)


def _skipped(scales: tuple[float, ...], attempts: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many steps were skipped in each row.

    Those before an executed step are attempts of its row. A fused optimizer is also called for a skipped step: then
    that has its own row, and the scale of the next row is lower.
    """
    lowered = (False, *(after < before for before, after in pairwise(scales)))
    return tuple(max(tried - 1, int(lower)) for tried, lower in zip(attempts, lowered, strict=True))
