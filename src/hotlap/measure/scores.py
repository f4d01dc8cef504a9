"""Compare the scores that the user's own metric gives a candidate with those of the model in float32.

Scores belong together sample by sample, so that the interval of the ratio of their means contains only what the
candidate changed (the delta method for a ratio of paired means: Cochran, *Sampling Techniques*, 6.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from hotlap.measure import student
from hotlap.measure.share import CONFIDENCE, share_with_interval
from hotlap.records import Estimate, ScoreQuality


class NoScore(Exception):
    """The message says why a share of the reference's score cannot be given."""


def compared_scores(
    name: str, reference: Mapping[str, Any], candidate: Mapping[str, Any], *, first: int = 0
) -> ScoreQuality | str:
    """Compare the scores of all inputs from number ``first`` on; a sentence if the candidate's are no answer.

    Raises :class:`NoScore` where the model's own scores allow no comparison.
    """
    key = f"scores/{first}"
    if key not in reference or key not in candidate:
        raise NoScore(f"{name} was not called, since not every input had its turn.")
    ours, theirs = reference[key].tolist(), candidate[key].tolist()
    if not all(map(math.isfinite, ours)):
        raise NoScore(f"{name} returned NaN or infinity for the unmodified model.")
    if not all(map(math.isfinite, theirs)):
        return f"{name} returned NaN or infinity."
    if len(ours) != len(theirs):
        raise NoScore(f"{name} returned {len(theirs)} scores, and {len(ours)} for the unmodified model.")
    mean = fmean(ours)
    if mean <= 0:
        raise NoScore(
            f"{name} is {mean:.4g} for the unmodified model: a share of it can only be required of scores above zero, "
            "of which larger ones are better."
        )
    return ScoreQuality(
        name=name,
        samples=len(ours),
        reference=_mean_with_interval(ours),
        candidate=_mean_with_interval(theirs),
        kept=_ratio_with_interval(ours, theirs),
    )


def _mean_with_interval(scores: list[float]) -> Estimate:
    if len(scores) > 1 and set(scores) <= {0.0, 1.0}:
        return share_with_interval(int(sum(scores)), len(scores))
    mean = fmean(scores)
    half = _half_width([it - mean for it in scores])
    return Estimate(value=mean, low=mean - half, high=mean + half)


def _ratio_with_interval(ours: list[float], theirs: list[float]) -> Estimate:
    """Where no sample differs, the interval is that of a share of which no exception was seen."""
    if ours == theirs and len(ours) > 1:
        return share_with_interval(len(ours), len(ours))
    mean = fmean(ours)
    ratio = fmean(theirs) / mean
    half = _half_width([b - ratio * a for a, b in zip(ours, theirs, strict=True)]) / mean
    return Estimate(value=ratio, low=ratio - half, high=ratio + half)


def _half_width(deviations: list[float]) -> float:
    """Half the width of the interval of a mean from which the samples deviate so; 0 with a single one."""
    count = len(deviations)
    if count < 2:
        return 0.0
    error = math.sqrt(math.fsum(it * it for it in deviations) / (count - 1) / count)
    return student.quantile((1 + CONFIDENCE) / 2, count - 1) * error
