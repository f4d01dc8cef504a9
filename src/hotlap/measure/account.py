"""The time account: where the seconds of a mean training step go."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hotlap.records import PhaseAccount, Steps

_TOLERANCE = 1e-3
_WARM_UP_STEPS = 6


def account(steps: Steps, *, skip: int) -> PhaseAccount:
    """Mean seconds per step by phase, the first ``skip`` rows (warm-up) left out.

    The phases add up to ``wall``: what rounding leaves over goes to ``other``. A phase whose column is empty was not
    observed and counts as zero. ``outside`` comes on top of the wall.

    Raises :class:`ValueError` when no rows remain, when columns differ in length, and when the phases miss the wall by
    more than 0.1 %: such an account would be no account.
    """
    if skip < 0 or skip >= len(steps.wall_seconds):
        raise ValueError(f"There are {len(steps.wall_seconds)} steps, of which {skip} are to be skipped.")
    wall = _mean("wall_seconds", steps.wall_seconds, steps, skip)
    data_wait = _mean("data_wait_seconds", steps.data_wait_seconds, steps, skip)
    host_to_device = _mean("host_to_device_seconds", steps.host_to_device_seconds, steps, skip)
    forward = _mean("forward_seconds", steps.forward_seconds, steps, skip)
    backward = _mean("backward_seconds", steps.backward_seconds, steps, skip)
    optimizer = _mean("optimizer_seconds", steps.optimizer_seconds, steps, skip)
    other = _mean("other_seconds", steps.other_seconds, steps, skip)
    rest = wall - math.fsum((data_wait, host_to_device, forward, backward, optimizer))
    if (abs(rest - other) > _TOLERANCE * wall and steps.other_seconds) or rest < -_TOLERANCE * wall:
        raise ValueError(f"The phases of a step add up to {wall - rest + other:.6g} s, its wall time is {wall:.6g} s.")
    return PhaseAccount(
        wall=wall,
        data_wait=data_wait,
        host_to_device=host_to_device,
        forward=forward,
        backward=backward,
        optimizer=optimizer,
        other=max(0.0, rest),
        outside=_mean("outside_seconds", steps.outside_seconds, steps, skip),
        samples_per_step=_mean("samples", steps.samples, steps, skip) if steps.samples else 1.0,
    )


def warm_up_steps(steps: Steps) -> int:
    """How many of the first steps to leave out of an account; those that observe cost extra are among them."""
    return min(_WARM_UP_STEPS, len(steps.wall_seconds) // 3)


def _mean(name: str, column: Sequence[float], steps: Steps, skip: int) -> float:
    if not column:
        return 0.0
    if len(column) != len(steps.wall_seconds):
        raise ValueError(f"The column {name} has {len(column)} rows, wall_seconds {len(steps.wall_seconds)}.")
    return math.fsum(column[skip:]) / (len(column) - skip)
