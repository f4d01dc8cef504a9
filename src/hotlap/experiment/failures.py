"""How a launch or a replicate failed."""

from __future__ import annotations

from dataclasses import dataclass

from hotlap.experiment.costs import FEWEST_ROUNDS_OF_A_SHORT_SCRIPT
from hotlap.records import Completed, Crashed, Ending, Replicate, Run, Stopped
from hotlap.wording import ending_text

FEWEST_ROUNDS_OF_A_GLANCE = 2
"""A single round cannot be told from a disturbance."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A replicate without numbers: which arm ended it, and how. ``cut``: no arm did; the time was over. ``begun`` is
    what a first measurement may still use of it, since all arms went through two rounds."""

    arm: int
    ending: Ending
    reason: str
    cut: bool = False
    begun: Replicate | None = None


def failure_of(turns: Replicate) -> Failure | None:
    """The arm that failed a replicate, or None for a complete one."""
    for arm, run in enumerate(turns.runs):
        if ran_through(run):
            continue
        ending = run.ending
        if isinstance(ending, Completed):
            ending = Crashed(exit_code=ending.exit_code, steps_done=steps_done(run))
        return Failure(arm, ending, ending_text(ending))
    diverged = _diverged_within_a_launch(turns)
    if diverged is not None:
        return diverged
    if turns.rounds and all(len(it) >= FEWEST_ROUNDS_OF_A_SHORT_SCRIPT for it in turns.rounds):
        return None
    ended = next((i for i, run in enumerate(turns.runs) if isinstance(run.ending, Completed)), None)
    if ended is None:
        begun = turns if min(map(len, turns.rounds), default=0) >= FEWEST_ROUNDS_OF_A_GLANCE else None
        return Failure(0, Stopped(), "The budget ended before the replicate was complete.", cut=True, begun=begun)
    return Failure(ended, Completed(), "The script ended before the replicate was complete.")


def _diverged_within_a_launch(turns: Replicate) -> Failure | None:
    """The configuration of a shared launch after whose switch the loss was no longer finite."""
    for arm, run in enumerate(turns.runs):
        if run.steps.not_finite and not run.steps.wall_seconds and run.plan != turns.runs[0].plan:
            step = run.steps.not_finite[0] + 1
            return Failure(
                arm, Stopped(), f"It diverged: at step {step} of a launch with other levers, while it was on."
            )
    return None


def ran_through(run: Run) -> bool:
    """Whether a run reached its last requested step, or the script's own successful end."""
    return isinstance(run.ending, Stopped) or (isinstance(run.ending, Completed) and run.ending.exit_code == 0)


def steps_done(run: Run) -> int:
    """The known number of steps of a run: a process that could not report leaves only that."""
    known = 0 if isinstance(run.ending, (Completed, Stopped)) else run.ending.steps_done
    return max(known, len(run.steps.wall_seconds))
