"""Stragglers, checkpoints, memory and costs, in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hotlap.records import MeasuredStep, Strategy
from hotlap.scaling.schedules import units

HEADROOM = 0.1
_HOUR_SECONDS = 3600.0


def expected_largest(values: Sequence[float], draws: int) -> float:
    """The expected largest of so many independent draws from the values.

    Of ``n`` sorted values the ``i``-th is the largest with probability ``(i/n)^draws - ((i-1)/n)^draws``. It never
    exceeds the largest value, so that rarer delays than were seen are left out. 0 without values.
    """
    count = len(values)
    ordered = enumerate(sorted(values), start=1)
    return math.fsum(it * ((rank / count) ** draws - ((rank - 1) / count) ** draws) for rank, it in ordered)


def straggler_seconds(step: MeasuredStep, ranks: int) -> float:
    """How much longer than the mean step the slowest of so many ranks is expected to take."""
    if ranks < 2 or len(step.step_seconds) < 2:
        return 0.0
    mean = math.fsum(step.step_seconds) / len(step.step_seconds)
    return max(0.0, expected_largest(step.step_seconds, ranks) - mean)


def checkpoint_interval(checkpoint_seconds: float, failure_seconds: float) -> float:
    """The interval between checkpoints that loses least time, where the whole job fails every ``failure_seconds``.

    Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", equation 37, of which the
    first term is Young's (1974, "A first order approximation to the optimum checkpoint interval").
    """
    if checkpoint_seconds >= 2 * failure_seconds:
        return failure_seconds
    ratio = checkpoint_seconds / (2 * failure_seconds)
    young = math.sqrt(2 * checkpoint_seconds * failure_seconds)
    return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_seconds


def peak_bytes(strategy: Strategy, step: MeasuredStep, ranks: int, *, copies: int = 2, reshards: bool = True) -> int:
    """The peak of one rank; 0 where memory was not counted.

    DDP holds ``copies`` of the gradients: its buckets are the second. FSDP2 holds the parameters of two parts and the
    gradients of one as a whole, and all parameters unless it ``reshards`` them after forward.
    """
    if step.activation_bytes is None:
        return 0
    fixed, gradients, state = step.parameter_bytes, step.gradient_bytes, step.optimizer_bytes
    if strategy == "fsdp2":
        largest = max((it.size_bytes for it in units(step)), default=0)
        whole = min(3 * largest if reshards else fixed + largest, fixed + gradients) if ranks > 1 else 0
        return step.activation_bytes + -(-(fixed + gradients + state) // ranks) + whole
    held = state if strategy == "ddp" else -(-state // ranks)
    return step.activation_bytes + fixed + (copies if ranks > 1 else 1) * gradients + held


def fits(needed_bytes: int, device_memory_bytes: int) -> bool | None:
    """Whether a tenth of the device stays free; None where either is unknown."""
    if not needed_bytes or not device_memory_bytes:
        return None
    return needed_bytes <= (1 - HEADROOM) * device_memory_bytes


def cost_per_million(samples_per_second: float, ranks: int, price_per_device_hour: float) -> float:
    """The price of a million samples."""
    return ranks * price_per_device_hour * 1e6 / samples_per_second / _HOUR_SECONDS
