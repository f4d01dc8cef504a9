"""G4: the quality of what is learned, for levers that change the trajectory itself.

Two one-sided tests (Schuirmann 1987) over paired seeds: the 90 % interval of the mean difference must lie within plus
or minus the spread that another seed alone gives the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from hotlap.measure import student
from hotlap.measure.parity.losses import FEWEST_STEPS, pair
from hotlap.records import GateResult, Run

FEWEST_SEEDS = 3
CONFIDENCE = 0.90
_TAIL = 10


def learning(pairs: Sequence[tuple[Run, Run]]) -> GateResult:
    """Compare (baseline, candidate) runs of the same seed by their mean loss over the last tenth of the steps.

    For an evaluation metric, use :func:`equivalence` with its values.
    """
    metrics = [(last_loss(baseline), last_loss(candidate)) for baseline, candidate in pairs]
    read = [(ours, theirs) for ours, theirs in metrics if ours is not None and theirs is not None]
    if any(pair(baseline, candidate).not_finite for baseline, candidate in pairs):
        return GateResult(gate="G4", passed=False, text="With at least one seed the loss is no longer finite.")
    if len(read) < len(metrics):
        return GateResult(gate="G4", passed=None, text="The last losses could not be read in all seeds.")
    return equivalence([ours for ours, _ in read], [theirs for _, theirs in read])


def equivalence(baseline: Sequence[float], candidate: Sequence[float]) -> GateResult:
    """Compare an evaluation metric, one value per seed.

    The gate fails only if the whole interval is outside the margin; between that and a pass it stays open, and more
    seeds would decide. Raises :class:`ValueError` if seeds are not paired or a value is not finite.
    """
    if len(baseline) != len(candidate):
        raise ValueError(f"Seeds must be paired; there are {len(baseline)} and {len(candidate)} values.")
    if not all(math.isfinite(it) for it in (*baseline, *candidate)):
        raise ValueError("An evaluation metric is not finite.")
    if len(baseline) < FEWEST_SEEDS:
        text = f"{len(baseline)} paired seeds; at least {FEWEST_SEEDS} are needed."
        return GateResult(gate="G4", passed=None, text=text)
    differences = [theirs - ours for ours, theirs in zip(baseline, candidate, strict=True)]
    margin = stdev(baseline)
    reach = student.quantile((1 + CONFIDENCE) / 2, len(differences) - 1)
    half_width = reach * stdev(differences) / math.sqrt(len(differences))
    low, high = fmean(differences) - half_width, fmean(differences) + half_width
    passed = True if -margin <= low and high <= margin else False if low > margin or high < -margin else None
    text = (
        f"Over {len(differences)} paired seeds the result changes by {low:+.4g} to {high:+.4g} (90 % interval); "
        f"a different seed alone changes it by {margin:.4g}."
    )
    return GateResult(gate="G4", passed=passed, found=max(abs(low), abs(high)), limit=margin, text=text)


def last_loss(run: Run) -> float | None:
    """The mean loss over the last tenth of a run's steps, or None with too few losses."""
    losses = [loss for loss in run.steps.loss if loss is not None]
    unread_at_the_end = None in run.steps.loss[-max(1, len(run.steps.loss) // _TAIL) :]
    if len(losses) < FEWEST_STEPS or unread_at_the_end:
        return None
    return fmean(losses[-max(1, len(losses) // _TAIL) :])
