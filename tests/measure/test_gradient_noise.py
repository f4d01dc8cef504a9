"""The gradient noise scale: recovered from synthetic gradients, with an interval that covers it."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from hotlap.measure.batch_advice import advise
from hotlap.measure.gradient_noise import noise_scale
from hotlap.records import GradientGroup, GradientNoise, OptimizerFacts


def groups(noise: float, *, seed: int = 0, count: int = 6, samples: int = 8, size: int = 400) -> list[GradientGroup]:
    """Of a gradient of norm 1 in ``size`` dimensions, whose noise in a single sample has trace ``noise``."""
    draw = random.Random(seed)
    deviation = (noise / size / samples) ** 0.5
    made = []
    for _ in range(count):
        rows = [[size**-0.5 + draw.gauss(0.0, deviation) for _ in range(size)] for _ in range(6)]
        mean = [fmean(column) for column in zip(*rows, strict=True)]
        squares = [sum(it * it for it in row) for row in rows]
        made.append(
            GradientGroup(
                gradients=6,
                samples=samples,
                mean_square=fmean(squares),
                square_of_mean=sum(it * it for it in mean),
            )
        )
    return made


@pytest.mark.parametrize("noise", [2.0, 50.0])
def test_the_interval_covers_the_noise_scale(noise: float) -> None:
    found = [noise_scale(groups(noise, seed=it)) for it in range(20)]
    covered = [it for it in found if it is not None and it.low <= noise <= (it.high or float("inf"))]
    assert len(covered) >= 14, "90 % intervals"
    scales = [it.scale for it in found if it is not None and it.scale is not None]
    assert fmean(scales) == pytest.approx(noise, rel=0.3)


def test_gradients_that_are_all_noise_have_no_upper_end() -> None:
    found = noise_scale(groups(1e6))
    assert found is not None and found.high is None and found.low < 1e6


def test_too_few_groups_give_no_scale() -> None:
    assert noise_scale(groups(2.0, count=2)) is None
    assert noise_scale([]) is None


NOISE = GradientNoise(scale=32.0, low=16.0, high=64.0, confidence=0.9, samples=8, groups=6, gradients=36)


def optimizer(kind: str) -> OptimizerFacts:
    return OptimizerFacts(kind=kind, parameters=1, learning_rate=0.1)


@pytest.mark.parametrize(("kind", "factor"), [("SGD", 4.0), ("AdamW", 2.0), ("Adafactor", None)])
def test_the_rule_follows_the_optimizer(kind: str, factor: float | None) -> None:
    assert advise(8, 32, optimizer(kind), None).factor == factor


def test_a_noise_scale_below_the_batch_tempers_the_rate_and_costs_samples() -> None:
    advice = advise(8, 32, optimizer("SGD"), NOISE)
    assert advice.tempered == pytest.approx(5 / 2) and advice.samples_factor == pytest.approx(2 / 1.25)
    assert advise(8, 32, optimizer("Adafactor"), NOISE).tempered is None
