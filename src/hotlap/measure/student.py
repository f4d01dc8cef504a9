"""Student's t distribution, using only the standard library.

The tail probability is half a regularised incomplete beta function, computed by the continued fraction of *NIST Digital
Library of Mathematical Functions*, section 8.17(v), with Lentz's method. The quantile is found by bisection of that
tail, which is slow but safe, and cached.
"""

from __future__ import annotations

import math
from functools import lru_cache

_SMALLEST = 1e-300
_PRACTICALLY_INFINITE = 1e150
_PRECISION = 1e-16
_MOST_TERMS = 10_000


def survival(t: float, degrees: float) -> float:
    """The probability of a value above ``t``, with that many degrees of freedom.

    Raises :class:`ValueError` for degrees of freedom that are not positive and for a ``t`` that is NaN.
    """
    if not degrees > 0 or math.isnan(t):
        raise ValueError(f"Student's t needs a number and positive degrees of freedom, not {t!r} and {degrees!r}.")
    if abs(t) > _PRACTICALLY_INFINITE:
        return 0.0 if t > 0 else 1.0
    square = t * t
    tail = 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + square), square / (degrees + square))
    return tail if t >= 0 else 1 - tail


@lru_cache(maxsize=1024)
def quantile(probability: float, degrees: float) -> float:
    """The value that is exceeded with probability ``1 - probability``.

    Raises :class:`ValueError` for a probability outside the open interval from 0 to 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"A quantile needs a probability between 0 and 1, not {probability!r}.")
    if probability < 0.5:
        return -_upper_quantile(probability, degrees)
    return _upper_quantile(1 - probability, degrees)


def _upper_quantile(tail: float, degrees: float) -> float:
    low, high = 0.0, 1.0
    while survival(high, degrees) > tail:
        low, high = high, 2 * high
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        if survival(middle, degrees) > tail:
            low = middle
        else:
            high = middle


def _incomplete_beta(a: float, b: float, x: float, complement: float) -> float:
    """The regularised incomplete beta function at ``x``; ``complement`` is 1 - x without cancellation."""
    if x <= 0:
        return 0.0
    if complement <= 0:
        return 1.0
    log_front = a * math.log(x) + b * math.log(complement) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front)
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1 - front * _continued_fraction(b, a, complement) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    c = 1.0
    d = 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for numerator in (even, odd):
            d = 1 / _away_from_zero(1 + numerator * d)
            c = _away_from_zero(1 + numerator / c)
            value *= c * d
        if abs(c * d - 1) < _PRECISION * 10:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _SMALLEST else _SMALLEST
