"""Check that the script still has the same losses as at a revision, with the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from hotlap.experiment.failures import Failure, ran_through
from hotlap.experiment.prove import NUDGES, affordable_steps
from hotlap.experiment.trials import Trials
from hotlap.measure.parity.verdict import ParityEvidence, judge, needs_more_nudges
from hotlap.records import (
    AlignRandomness,
    Instrument,
    NudgeWeights,
    Parity,
    Replicate,
    Run,
    Sides,
    WithoutDropout,
)
from hotlap.wording import ending_text

_LAUNCHES = 4


class TwoScripts:
    """The gates of parity for two versions of a script under one plan.

    A change of rounding is allowed, as for a lever: another order of the same sums changes a loss by as much. Losses
    that the timing runs already show to be identical are not compared again.
    """

    launches = _LAUNCHES

    def __init__(self, trials: Trials, sides: Sides) -> None:
        self.steps = affordable_steps(trials)
        self._trials = trials
        self._sides = sides

    def cost(self) -> float:
        """The seconds of all launches, but for those that are made only where time is left."""
        return _LAUNCHES * self._trials.costs.of_launch(self._sides.before_plan, self.steps)

    def prove(self, replicates: Sequence[Replicate]) -> Parity | Failure:
        """The verdict; a Failure if the present script failed in the parity run."""
        timed = [judge(_exactly(*it.runs[:3])) for it in replicates]
        if timed and all(it.verdict == "exact" and it.steps >= self.steps for it in timed):
            return min(timed, key=lambda it: it.steps)
        baseline, again, candidate = self._run(), self._run(), self._run(now=True)
        if not ran_through(candidate):
            return Failure(2, candidate.ending, f"In the run that compares numbers: {ending_text(candidate.ending)}")
        if not candidate.steps.wall_seconds:
            return Failure(2, candidate.ending, "The current script ended without a training step.")
        exact = judge(_exactly(baseline, again, candidate))
        if exact.verdict == "exact" or exact.gates[0].passed is False:
            return exact
        first, *others = NUDGES.values()
        evidence = ParityEvidence(
            baseline=baseline,
            baseline_again=again,
            candidate=candidate,
            proof="rounding",
            nudged=self._nudged(first),
        )
        found = judge(evidence)
        more_seconds = len(others) * self._trials.costs.of_launch(self._sides.before_plan, self.steps)
        if not needs_more_nudges(found) or not self._trials.fits(more_seconds):
            return found
        return judge(replace(evidence, nudged=evidence.nudged + self._nudged(*others)))

    def _nudged(self, *nudges: NudgeWeights) -> tuple[Run, ...]:
        return tuple(run for run in (self._run(nudge=it) for it in nudges) if ran_through(run))

    def _run(self, *, now: bool = False, nudge: NudgeWeights | None = None) -> Run:
        sides = self._sides
        plain = self._trials.assignment(sides.now_plan if now else sides.before_plan)
        instruments: tuple[Instrument, ...] = (WithoutDropout(), AlignRandomness())
        assignment = msgspec.structs.replace(
            plain,
            workload=sides.now if now else sides.before,
            instruments=(*instruments, nudge) if nudge is not None else instruments,
        )
        return self._trials.launch(assignment, steps=self.steps)


def unless_noisy(parity: Parity) -> Parity:
    """The verdict, or *not verified* if two runs of the same script differ as well.

    Settings that must not change from step to step (G0) need no repetition.
    """
    gates = {it.gate: it for it in parity.gates}
    itself = gates.get("G1")
    invariants = gates.get("G0")
    changed = invariants is not None and invariants.passed is False
    if parity.verdict != "lost" or changed or itself is None or itself.passed is not False:
        return parity
    text = f"Not verified: {itself.text[:1].lower()}{itself.text[1:]} Seed the script to make changes detectable."
    return msgspec.structs.replace(parity, verdict="not-verified", text=text)


def _exactly(baseline: Run, again: Run, candidate: Run) -> ParityEvidence:
    return ParityEvidence(baseline=baseline, baseline_again=again, candidate=candidate, proof="exact")
