"""The share of the user's own metric that a candidate keeps."""

from __future__ import annotations

import numpy as np
import pytest

from hotlap.measure.quality import judge_quality
from hotlap.measure.scores import NoScore, compared_scores
from hotlap.records import OutputQuality, ScoreQuality, TaskQuality

OUTPUT = OutputQuality(name="output", relative_error=0.2, worst_relative_error=0.2, cosine=0.9)


def compared(ours: list[float], theirs: list[float]) -> ScoreQuality | str:
    return compared_scores("m:f", {"scores/0": np.array(ours)}, {"scores/0": np.array(theirs)})


def judged(score: ScoreQuality | str, level: float) -> TaskQuality:
    return judge_quality((OUTPUT,), level=level, inputs=4, random_weights=0.0, proof="rounding", score=score)


def test_a_share_with_its_interval_over_samples() -> None:
    ours = [1.0] * 90 + [0.0] * 10
    theirs = [1.0] * 88 + [0.0] * 12
    found = compared(ours, theirs)
    assert isinstance(found, ScoreQuality)
    assert found.samples == 100 and found.kept.value == pytest.approx(88 / 90)
    assert found.kept.low < 88 / 90 < found.kept.high < 1.02
    assert found.reference.low < 0.9 < found.reference.high


def test_the_interval_of_a_ratio_covers_the_truth() -> None:
    """95 % of intervals contain the ratio of the means that samples were drawn from."""
    draw = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        ours = draw.uniform(0.5, 1.5, 60)
        theirs = 0.97 * ours + draw.normal(0, 0.05, 60)
        found = compared(ours.tolist(), theirs.tolist())
        assert isinstance(found, ScoreQuality)
        covered += found.kept.low <= 0.97 <= found.kept.high
    assert 0.92 <= covered / 400 <= 0.98


def test_no_difference_on_few_samples_is_not_certain() -> None:
    found = compared([1.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    assert isinstance(found, ScoreQuality)
    assert found.kept.value == 1.0 and found.kept.low < 0.6


def test_one_score_has_no_interval() -> None:
    found = compared([0.8], [0.6])
    assert isinstance(found, ScoreQuality)
    assert (found.samples, found.kept.value, found.kept.low) == (1, pytest.approx(0.75), pytest.approx(0.75))


def test_the_level_applies_to_the_metric_and_not_to_cosine() -> None:
    found = compared([1.0] * 100, [1.0] * 97 + [0.0] * 3)
    assert judged(found, 0.95).verdict == "within"
    assert judged(found, 0.98).verdict == "lost"
    assert judged(found, 0.95).likeness == pytest.approx(0.97)
    assert "m:f, 100 samples: 0.97" in judged(found, 0.95).text


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf")])
def test_scores_that_are_not_finite_never_pass(nonsense: float) -> None:
    found = compared([1.0, 1.0], [1.0, nonsense])
    assert found == "m:f returned NaN or infinity."
    assert judged(found, 0.5).verdict == "lost"


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([1.0, float("nan")], [1.0, 1.0], "NaN or infinity for the unmodified model"),
        ([1.0, 1.0], [1.0], "returned 1 scores, and 2 for the unmodified model"),
        ([-2.0, -1.0], [-2.0, -1.0], "of scores above zero"),
    ],
)
def test_scores_that_allow_no_comparison(ours: list[float], theirs: list[float], said: str) -> None:
    with pytest.raises(NoScore, match=said):
        compared(ours, theirs)


def test_scores_without_the_inputs_that_calibrated() -> None:
    reference = {"scores/0": np.ones(8), "scores/4": np.ones(4)}
    found = compared_scores("m:f", reference, {"scores/4": np.array([1.0, 1.0, 1.0, 0.5])}, first=4)
    assert isinstance(found, ScoreQuality) and found.kept.value == pytest.approx(0.875)
    with pytest.raises(NoScore, match="was not called"):
        compared_scores("m:f", {"scores/0": np.ones(8)}, {"scores/4": np.ones(4)}, first=4)
