"""G4: the quality of what is learned, for levers that change the trajectory itself.

Two one-sided tests (Schuirmann 1987) over paired seeds: the 90 % interval of the mean difference must lie within plus
or minus the spread that another seed alone gives the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from hotlap.measure import student
from hotlap.measure.parity.losses import FEWEST_STEPS, pair
from hotlap.records import GateResult, HeldOutLoss, Run

FEWEST_SEEDS = 3
CONFIDENCE = 0.90
_TAIL = 10
_ALIKE = 0.1
"""The largest difference, as a share, at which numbers of samples count as equal."""


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


def learning_at_equal_samples(pairs: Sequence[tuple[Run, Run]], factor: float) -> GateResult:
    """The same for a candidate whose steps have ``factor`` times as many samples.

    The held-out loss of the last evaluation that all runs made after equally many samples is compared; where there is
    none, the training loss. Each run must have been ended after equally many samples.
    """
    if any(run.steps.not_finite for it in pairs for run in it):
        return GateResult(gate="G4", passed=False, text="With at least one seed the loss is no longer finite.")
    evaluated = [_last_common(baseline, candidate) for baseline, candidate in pairs]
    held_out = [(ours.loss, theirs.loss) for it in evaluated if it is not None for ours, theirs in (it,)]
    if pairs and len(held_out) == len(pairs):
        first = next(it for it in evaluated if it is not None)
        what, steps, samples = "the held-out loss", (first[0].step, first[1].step), first[0].trained
        metrics = held_out
    else:
        read = [(last_loss(baseline), last_loss(candidate)) for baseline, candidate in pairs]
        metrics = [(ours, theirs) for ours, theirs in read if ours is not None and theirs is not None]
        if len(metrics) < len(pairs):
            return GateResult(gate="G4", passed=None, text="The last losses could not be read in all seeds.")
        trained = [(sum(ours.steps.samples), sum(theirs.steps.samples)) for ours, theirs in pairs]
        if any(abs(theirs / max(1, ours) - 1) > _ALIKE for ours, theirs in trained):
            return GateResult(gate="G4", passed=None, text="The runs ended after different numbers of samples.")
        what = "the training loss (the script was not seen to evaluate after equally many samples)"
        steps = (len(pairs[0][0].steps.loss), len(pairs[0][1].steps.loss)) if pairs else (0, 0)
        samples = trained[0][0] if trained else 0
    result = equivalence([ours for ours, _ in metrics], [theirs for _, theirs in metrics], what)
    text = (
        f"{result.text} Learned from {samples:,} samples in {steps[1]:,} updates of {factor:g} times the batch size, "
        f"instead of {steps[0]:,}."
    )
    return GateResult(gate="G4", passed=result.passed, found=result.found, limit=result.limit, text=text)


def is_scaled(baseline: Run, candidate: Run, factor: float) -> bool:
    """Whether steps of the candidate have ``factor`` times as many samples; True where they could not be counted."""
    ours, theirs = baseline.steps.samples, candidate.steps.samples
    if not ours or not theirs or not median(ours):
        return True
    return abs(median(theirs) / (factor * median(ours)) - 1) <= _ALIKE


def _last_common(baseline: Run, candidate: Run) -> tuple[HeldOutLoss, HeldOutLoss] | None:
    """The last evaluations of both runs after equally many samples."""
    for ours in reversed(baseline.evaluations):
        for theirs in reversed(candidate.evaluations):
            if ours.trained and abs(theirs.trained / ours.trained - 1) <= _ALIKE:
                return ours, theirs
    return None


def equivalence(baseline: Sequence[float], candidate: Sequence[float], what: str = "the result") -> GateResult:
    """Compare an evaluation metric, which the text calls ``what``, one value per seed.

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
        f"Over {len(differences)} paired seeds {what} changes by {low:+.4g} to {high:+.4g} (90 % interval); "
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
