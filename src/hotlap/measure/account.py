"""The time account: where the seconds of a mean training step go."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hotlap.records import STEP_PHASES, PhaseAccount, Steps

_TOLERANCE = 1e-3
_WARM_UP_STEPS = 6


def account(steps: Steps, *, skip: int) -> PhaseAccount:
    """Mean seconds per step by phase, the first ``skip`` rows (warm-up) left out.

    The phases add up to ``wall``: ``other`` absorbs rounding. A phase with an empty column was not observed and counts
    as zero. ``outside`` is not part of ``wall``.

    Raises :class:`ValueError` if no rows remain, if columns differ in length, and if the sum of the phases differs from
    ``wall`` by more than 0.1 %.
    """
    if skip < 0 or skip >= len(steps.wall_seconds):
        raise ValueError(f"Cannot skip {skip} of {len(steps.wall_seconds)} steps.")
    wall = _mean("wall_seconds", steps.wall_seconds, steps, skip)
    seconds = {phase: _mean(phase, steps.seconds_in(phase), steps, skip) for phase in STEP_PHASES}
    rest = wall - math.fsum(it for phase, it in seconds.items() if phase != "other")
    if (abs(rest - seconds["other"]) > _TOLERANCE * wall and steps.seconds_in("other")) or rest < -_TOLERANCE * wall:
        whole = wall - rest + seconds["other"]
        raise ValueError(f"The phases of a step add up to {whole:.6g} s, its wall time is {wall:.6g} s.")
    seconds["other"] = max(0.0, rest)
    return PhaseAccount(
        wall=wall,
        phases=tuple(seconds.items()),
        outside=_mean("outside_seconds", steps.outside_seconds, steps, skip),
        samples_per_step=_mean("samples", steps.samples, steps, skip) if steps.samples else 1.0,
    )


def warm_up_steps(steps: Steps) -> int:
    """How many first steps an account leaves out: warm-up, and steps that are slower because they are observed."""
    return min(_WARM_UP_STEPS, len(steps.wall_seconds) // 3)


def _mean(name: str, column: Sequence[float], steps: Steps, skip: int) -> float:
    if not column:
        return 0.0
    if len(column) != len(steps.wall_seconds):
        raise ValueError(f"The column {name} has {len(column)} rows, wall_seconds {len(steps.wall_seconds)}.")
    return math.fsum(column[skip:]) / (len(column) - skip)
