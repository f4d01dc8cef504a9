"""The losses of two runs as curves for a chart, with the tolerance band of gate G3; nothing is judged here."""

from __future__ import annotations

import math
from itertools import count
from typing import TypeGuard

from hotlap.measure.parity.losses import loss_scales, moving_average
from hotlap.records import LossCurves, Quality, Run

MOST_ROWS = 400
"""More points than a page is wide show no more detail; beyond this only every second, third ... step is kept."""


def loss_curves(baseline: Run, plan: Run, quality: Quality | None) -> LossCurves | None:
    """The losses of both runs at the steps where both could be read; None with fewer than two such steps.

    The moving averages are taken over all steps, before any is left out.
    """
    pairs = zip(count(1), baseline.steps.loss, plan.steps.loss, strict=False)
    rows = [(step, one, other) for step, one, other in pairs if _is_number(one) and _is_number(other)]
    if len(rows) < 2:
        return None
    ones, others = [it[1] for it in rows], [it[2] for it in rows]
    limit = quality.trajectory_limit if quality is not None else None
    allowed = [] if limit is None else [limit * scale for scale in loss_scales(ones)]
    every = math.ceil(len(rows) / MOST_ROWS)
    kept = slice(None, None, every)
    return LossCurves(
        compared_steps=len(rows),
        every=every,
        steps=tuple(it[0] for it in rows[kept]),
        baseline=tuple(ones[kept]),
        plan=tuple(others[kept]),
        baseline_average=tuple(moving_average(ones)[kept]),
        plan_average=tuple(moving_average(others)[kept]),
        allowed=tuple(allowed[kept]),
    )


def _is_number(loss: float | None) -> TypeGuard[float]:
    return loss is not None and math.isfinite(loss)
