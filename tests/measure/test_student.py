"""Student's t against scipy's."""

from __future__ import annotations

import math

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure import student

degrees_of_freedom = st.integers(1, 500)


@given(degrees_of_freedom, st.floats(1e-9, 1 - 1e-9))
def test_quantiles_agree_with_scipy(degrees: int, probability: float) -> None:
    assert student.quantile(probability, degrees) == pytest.approx(
        scipy.stats.t.ppf(probability, degrees), rel=1e-8, abs=1e-8
    )


@given(degrees_of_freedom, st.floats(-1e6, 1e6))
def test_tails_agree_with_scipy(degrees: int, t: float) -> None:
    assert student.survival(t, degrees) == pytest.approx(scipy.stats.t.sf(t, degrees), rel=1e-9, abs=1e-300)
    assert student.survival(-t, degrees) == pytest.approx(scipy.stats.t.cdf(t, degrees), rel=1e-9, abs=1e-300)


@given(degrees_of_freedom, st.floats(0.001, 0.999))
def test_quantile_inverts_the_distribution(degrees: int, probability: float) -> None:
    assert student.survival(-student.quantile(probability, degrees), degrees) == pytest.approx(probability, rel=1e-9)


def test_a_value_from_a_printed_table() -> None:
    assert student.quantile(0.975, 4) == pytest.approx(2.776445, abs=1e-6)
    assert student.survival(math.inf, 3) == 0
    assert student.survival(-math.inf, 3) == 1


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, math.nan])
def test_a_quantile_needs_a_probability(probability: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        student.quantile(probability, 3)


@pytest.mark.parametrize(("t", "degrees"), [(1.0, 0.0), (1.0, -2.0), (math.nan, 3.0)])
def test_a_tail_needs_a_number_and_degrees_of_freedom(t: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        student.survival(t, degrees)
