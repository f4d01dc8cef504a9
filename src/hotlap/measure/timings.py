"""The times of a verification, reduced to what a report draws; nothing is judged here."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from hotlap.measure.account import warm_up_steps
from hotlap.records import Replicate, Run, Timings

MOST_STEPS = 400
"""More points than a page is wide show no more detail."""


def timings(replicates: Sequence[Replicate], arms: tuple[int, int, int] = (0, 1, 2)) -> Timings:
    """The rounds of the baseline, its repeat and the plan, and the steps of the last replicate.

    Raises :class:`ValueError` without replicates.
    """
    if not replicates:
        raise ValueError("There are no replicates.")
    baseline, repeat, plan = (tuple(it.rounds[arm] for it in replicates) for arm in arms)
    last = replicates[-1]
    (steps, samples), _, (plan_steps, plan_samples) = (_steps(last.runs[arm], len(last.rounds[arm])) for arm in arms)
    return Timings(
        baseline=baseline,
        repeat=repeat,
        plan=plan,
        baseline_steps=steps,
        plan_steps=plan_steps,
        baseline_samples=samples,
        plan_samples=plan_samples,
    )


def _steps(run: Run, rounds: int) -> tuple[tuple[float, ...], float]:
    """The last steps of so many rounds, and their mean samples; of a run without blocks all but the warm-up."""
    seconds, samples = run.steps.wall_seconds, run.steps.samples
    timed = run.blocks[run.warm_up_blocks :] if rounds else ()
    blocks = [it for it in timed if it.first_step is not None]
    rows = [row for it in blocks for row in range(it.first_step or 0, (it.first_step or 0) + it.steps)]
    rows = [row for row in rows if row < len(seconds)] or list(range(warm_up_steps(run.steps), len(seconds)))
    rows = rows[-MOST_STEPS:]
    known = [samples[row] for row in rows if row < len(samples) and samples[row] > 0]
    return tuple(seconds[row] for row in rows), fmean(known) if known else 1.0
