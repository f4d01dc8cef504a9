"""Check that a patched script's model returns what it returned with the levers installed from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from hotlap.experiment.failures import Failure
from hotlap.experiment.prove_outputs import captured_outputs, inputs_of, units_for_all_inputs
from hotlap.experiment.trials import Trials
from hotlap.measure.quality import compared_outputs, judge_quality
from hotlap.records import CaptureOutputs, Quality, Replicate, ScriptFacts, Sides

LEVEL: Final = 0.9999
"""What cosine and agreement must reach: both sides use the same number formats."""


class TwoScriptsOutputs:
    """The outputs of the first calls of two versions of a script."""

    def __init__(self, trials: Trials, sides: Sides, facts: ScriptFacts) -> None:
        self._trials = trials
        self._sides = sides
        self._calls = units_for_all_inputs(facts)

    def prove(self, replicates: Sequence[Replicate]) -> Quality | Failure:
        """The verdict; a Failure if either failed. Timing runs store no outputs, so ``replicates`` are not used."""
        before, now = self._outputs(now=False), self._outputs(now=True)
        if isinstance(before, Failure):
            return before
        if isinstance(now, Failure):
            return now
        return judge_quality(
            compared_outputs(before, now),
            level=LEVEL,
            inputs=inputs_of(before),
            random_weights=0.0,
            proof="rounding",
        )

    def _outputs(self, *, now: bool) -> Mapping[str, Any] | Failure:
        sides = self._sides
        plain = self._trials.assignment(sides.now_plan if now else sides.before_plan)
        workload = sides.now if now else sides.before
        assignment = msgspec.structs.replace(plain, workload=workload, instruments=(CaptureOutputs(),))
        return captured_outputs(self._trials.launch(assignment, steps=self._calls))
