"""Does a model still return the same? The launches that keep its outputs, each made once in a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.comparing import CANDIDATE
from hotlap.experiment.prove import Prover
from hotlap.experiment.trials import Failure, Trials, ran_through
from hotlap.levers.api import Lever
from hotlap.measure.quality import Unreadable, compared_outputs, judge_quality, outputs_of, random_share
from hotlap.records import CaptureOutputs, EngineReport, Plan, Run, ShiftSeeds, Situation, TaskQuality, TurnSet
from hotlap.wording import ending_text

_COMPILING = ("compile", "torchao-int8")
_FEWEST_CALLS = 3
"""What a call computes in is looked at from the second one on."""


class TaskQualityProver(Prover):
    """Compares what a plan's model returns for each of the user's inputs with the model in float32 and no plan."""

    def __init__(self, trials: Trials, levers: Mapping[str, Lever], situation: Situation) -> None:
        super().__init__(trials, levers, situation)
        self._calls = max(_FEWEST_CALLS, situation.facts.inputs)
        self._inputs = situation.facts.inputs
        self._compared: dict[Plan, TaskQuality | Failure] = {}
        self._reference: Mapping[str, Any] | Failure | None = None
        self._random: float | None = None
        self._engines: dict[Plan, EngineReport] = {}

    def cost(self, plan: Plan) -> float:
        """Those of the plan, and at first of the reference and its weights."""
        if plan in self._compared:
            return 0.0
        costs = self._trials.costs
        known = self._reference is not None
        return costs.of_launch(plan, self._calls) + (0.0 if known else 2 * costs.of_launch(plans_of.EMPTY, self._calls))

    def prove_exact(self, sets: Sequence[TurnSet]) -> TaskQuality:
        """As :meth:`prove`: the timing runs keep no outputs."""
        plan = sets[-1].runs[CANDIDATE].plan
        found = self.prove(plan)
        if isinstance(found, Failure):
            level = self._trials.options.quality
            return TaskQuality(
                verdict="not-verified", proof="exact", text=found.reason, level=level, inputs=self._inputs
            )
        return found

    def prove(self, plan: Plan) -> TaskQuality | Failure:
        """The plan's outputs against the reference's; a Failure where either could not be had."""
        if plan not in self._compared:
            self._compared[plan] = self._compare(plan)
        return self._compared[plan]

    def engine_of(self, plan: Plan) -> EngineReport | None:
        """What ran the model in the launch that compared the plan's outputs, with what its graph shows."""
        return self._engines.get(plan)

    def compared_runs(self, plan: Plan) -> tuple[Run, Run] | None:
        """There are no losses to show."""
        return None

    def _compare(self, plan: Plan) -> TaskQuality | Failure:
        reference = self._reference_outputs()
        if isinstance(reference, Failure):
            return reference
        run = self._launch(plan, (CaptureOutputs(),))
        candidate = _outputs(run)
        if isinstance(candidate, Failure):
            return candidate
        if run.engine is not None:
            self._engines[plan] = run.engine
        proof = self._proof_of(plan)
        calibrated = run.engine.calibrated_inputs if run.engine is not None else 0
        judged = judge_quality(
            compared_outputs(reference, candidate, first=calibrated),
            level=self._trials.options.quality,
            inputs=self._inputs - calibrated,
            random_weights=self._random,
            proof=proof,
        )
        other = _other_precision(plan, run) or _not_compiled(plan, run) or self._other_engine(plan, run)
        if other and judged.verdict != "lost":
            return msgspec.structs.replace(judged, verdict="not-verified", text=f"{other} {judged.text}")
        return judged

    def _other_engine(self, plan: Plan, run: Run) -> str:
        """A sentence where the engine of the plan did not run the model, or not in the format asked for."""
        asked = next((it for it in plan.settings if self._levers[it.lever].replaces_torch), None)
        if asked is None:
            return ""
        found, precision = run.engine, dict(asked.values).get("precision", "")
        if found is None:
            return f"{asked.lever} was asked for, and the model ran without it."
        if not found.operators:
            return f"{found.engine} was asked for, and took no operator of the model."
        if precision and found.precision != str(precision).removesuffix("-dynamic"):
            return f"{precision} was asked for, and {found.engine} computed in {found.precision}."
        return ""

    def _reference_outputs(self) -> Mapping[str, Any] | Failure:
        if self._reference is None:
            run = self._launch(plans_of.EMPTY, (CaptureOutputs(in_float32=True),))
            self._reference = _outputs(run)
            if not isinstance(self._reference, Failure):
                self._random = 0.0 if run.facts.optimizers else self._random_share(self._reference)
        return self._reference

    def _random_share(self, reference: Mapping[str, Any]) -> float | None:
        """Weights that the program itself trained depend on the seed as well, and are no random ones: it is not asked
        of such a program."""
        again = _outputs(self._launch(plans_of.EMPTY, (ShiftSeeds(), CaptureOutputs()), other_seed=True))
        return None if isinstance(again, Failure) else random_share(reference, again)

    def _launch(self, plan: Plan, instruments: tuple[Any, ...], *, other_seed: bool = False) -> Run:
        assignment = self._trials.assignment(plan)
        seed = assignment.seed + other_seed
        assignment = msgspec.structs.replace(assignment, seed=seed, instruments=instruments)
        return self._trials.launch(assignment, steps=1 if other_seed else self._calls)


def _outputs(run: Run) -> Mapping[str, Any] | Failure:
    if not ran_through(run):
        return Failure(0, run.ending, f"In the launch that compares outputs: {ending_text(run.ending)}")
    try:
        return outputs_of(run.outputs_path)
    except Unreadable as error:
        return Failure(0, run.ending, str(error))


def _other_precision(plan: Plan, run: Run) -> str:
    """A sentence where the model did not compute in the format that the plan asks for."""
    wanted = {str(value) for it in plan.settings for name, value in it.values if name == "dtype"}
    computed = {run.facts.autocast_dtype, *(it.dtype for it in run.facts.models)}
    missing = sorted(wanted - computed)
    if not missing:
        return ""
    return f"{missing[0]} was asked for, and the model computed in {', '.join(sorted(it for it in computed if it))}."


def _not_compiled(plan: Plan, run: Run) -> str:
    """A sentence where Dynamo found nothing to compile, which it does not say."""
    if run.compile.graphs or all(it.lever not in _COMPILING for it in plan.settings):
        return ""
    return "torch.compile was asked for, and no graph was compiled."
