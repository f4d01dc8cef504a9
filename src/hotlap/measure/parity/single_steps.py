"""G5: single steps from where the unmodified script's own steps started, for a script that amplifies rounding.

Where one unit in the last place of the weights soon moves the losses by per cents, as in networks with batch
normalization or a high learning rate, two runs that compute the same part ways, and their losses say nothing about a
lever. A step that starts from the same weights, buffers and optimizer state amplifies nothing. So some steps over the
whole run start from there, and their losses are compared, and what they change of the weights: a fault that the losses
of a long run would show, a step shows too. What healthy levers and faults differ by was measured in five networks
(``bench.single_steps``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from hotlap.measure.parity.losses import loss_scales, percent
from hotlap.measure.parity.trajectory import FLOOR
from hotlap.records import FEWEST_KEPT_STEPS, GateResult, Run

LARGEST_LOSS_ERROR = 0.01
"""Of a single step: rounding to a lower precision changes a loss at random, so that its mean over steps is what counts,
but not by more than this."""

LENGTH_TOLERANCE = 0.01
"""By so much the length of what steps change may differ on average: a wrong learning rate or clipping changes it."""


@dataclass(frozen=True, slots=True)
class _Errors:
    """The largest errors allowed of what a step changes: in half of the steps, and in any of them; and of what it
    changes of one tensor, in half of the steps."""

    median: float
    largest: float
    tensor: float


_SAME_PRECISION = _Errors(0.001, 0.05, 0.01)
"""A sum in another order changes nearly nothing, but an activation may cross a threshold, and its share of a gradient
comes or goes as a whole."""

_OTHER_PRECISION = _Errors(0.02, math.sqrt(2 * (1 - 0.95)), 0.15)
"""The largest is that of vectors of equal length with a cosine of 0.95: in the first steps of a training, gradients
cancel out, and rounding to a lower precision changes what is left of them by more than later."""


def single_steps(baseline: Run, restored: Run, candidate: Run, *, changes_precision: bool) -> GateResult:
    """Require the same losses and changes of the weights from steps that started from the baseline's.

    ``restored`` is the unmodified script with nudged initial weights whose steps started from there too: it shows
    whether that brings back all that a step depends on. ``passed`` is None where it does not, or with too few such
    steps, and where the candidate's differ: in a script like that only a step that does the same is evidence.
    """
    own, theirs = differences(baseline, restored), differences(baseline, candidate)
    if len(own.losses) < FEWEST_KEPT_STEPS or len(theirs.losses) < FEWEST_KEPT_STEPS:
        return _open("Too few single steps could be started from where the unmodified script's did.")
    if own.exceeded(_SAME_PRECISION):
        return _open("The script's steps depend on more than its weights, buffers and optimizers, which were the same.")
    exceeded = theirs.exceeded(_OTHER_PRECISION if changes_precision else _SAME_PRECISION)
    what = exceeded or (
        f"losses differ by {percent(theirs.loss_error)} on average, and what a step changes of the weights by "
        f"{percent(theirs.median_error)} in the median"
    )
    text = f"{len(theirs.losses)} single steps from the unmodified script's own weights: {what}."
    passed = None if exceeded else True
    return GateResult(gate="G5", passed=passed, found=theirs.loss_error, limit=FLOOR, text=text)


@dataclass(frozen=True, slots=True)
class StepDifferences:
    """For each step: the relative difference of its loss, and how what it changes differs in direction and length."""

    losses: tuple[float, ...]
    errors: tuple[float, ...]
    lengths: tuple[float, ...]
    tensors: tuple[tuple[float | None, ...], ...] = ()

    @property
    def tensor_error(self) -> float:
        """How far apart what a step changes of one tensor is, in its median step: of the tensor that differs most. One
        that hardly counts in most of the steps is left out."""
        columns = [[it for it in own if it is not None] for own in zip(*self.tensors, strict=True)]
        return max((median(it) for it in columns if len(it) > len(self.tensors) / 2), default=0.0)

    @property
    def loss_error(self) -> float:
        """The mean difference of the losses, with its sign, in absolute value."""
        return abs(fmean(self.losses))

    @property
    def median_error(self) -> float:
        """How far apart what a step changes is, in the median step."""
        return median(self.errors)

    @property
    def largest_error(self) -> float:
        """The same in the step in which it is farthest."""
        return max(self.errors)

    @property
    def length_error(self) -> float:
        """By how much longer or shorter what steps change is on average."""
        return abs(fmean(map(math.log, self.lengths)))

    def exceeded(self, allowed: _Errors) -> str:
        """What differs by more than it may; empty if nothing does."""
        compared = (
            ("losses differ", "on average", self.loss_error, FLOOR),
            ("the loss of one differs", "", max(map(abs, self.losses)), LARGEST_LOSS_ERROR),
            ("what a step changes of the weights differs", "in the median", self.median_error, allowed.median),
            ("what one changes of the weights differs", "", self.largest_error, allowed.largest),
            ("what a step changes of one tensor differs", "in the median", self.tensor_error, allowed.tensor),
            ("what a step changes is longer or shorter", "on average", self.length_error, LENGTH_TOLERANCE),
        )
        for what, where, found, limit in compared:
            if not found <= limit:
                size = f"by {percent(found)}" if math.isfinite(found) else "without measure"
                return f"{what} {size}{where and ' '}{where}, and {percent(limit)} is allowed"
        return ""


def differences(baseline: Run, other: Run) -> StepDifferences:
    """Those of the steps whose loss is known; infinite where the other's loss or change is not finite or not there.

    Losses are relative to the baseline's around that step, as those of G3 are.
    """
    known = {step: loss for step in range(len(baseline.steps.loss)) if (loss := _loss(baseline, step)) is not None}
    scales = dict(zip(known, loss_scales(list(known.values())), strict=True)) if known else {}
    rows = [it for it in other.restored_steps if it.step in known]

    def difference(step: int) -> float:
        loss = _loss(other, step)
        return (loss - known[step]) / scales[step] if loss is not None and scales[step] else math.inf

    return StepDifferences(
        losses=tuple(difference(it.step) for it in rows),
        errors=tuple(math.inf if it.error is None else it.error for it in rows),
        lengths=tuple(it.length_ratio or math.inf for it in rows),
        tensors=_of_tensors([it.tensor_errors for it in rows]),
    )


def _of_tensors(rows: Sequence[tuple[float | None, ...]]) -> tuple[tuple[float | None, ...], ...]:
    """The same for each tensor; of as many as all steps have."""
    count = min(map(len, rows), default=0)
    return tuple(row[:count] for row in rows)


def _loss(run: Run, step: int) -> float | None:
    losses: Sequence[float | None] = run.steps.loss
    loss = losses[step] if step < len(losses) and step not in run.steps.not_finite else None
    return loss if loss is not None and math.isfinite(loss) else None


def _open(text: str) -> GateResult:
    return GateResult(gate="G5", passed=None, text=text)
