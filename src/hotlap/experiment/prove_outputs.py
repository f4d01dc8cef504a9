"""Prove that a model still returns the same outputs, by launches that store them, each once per study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.comparing import CANDIDATE
from hotlap.experiment.failures import Failure, ran_through
from hotlap.experiment.prove import Prover
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever
from hotlap.measure.quality import Unreadable, compared_outputs, judge_quality, outputs_of, random_share
from hotlap.measure.scores import NoScore, compared_scores
from hotlap.records import (
    CaptureOutputs,
    EngineReport,
    Plan,
    Replicate,
    Run,
    ScoreQuality,
    ScriptFacts,
    Setting,
    ShiftSeeds,
    Situation,
    TaskQuality,
    Workload,
)
from hotlap.wording import ending_text

_COMPILING = ("compile", "torchao-int8")
_FEWEST_CALLS = 3
"""The precision of calls is examined from the second one on."""


def units_for_all_inputs(facts: ScriptFacts, plan: Plan = plans_of.EMPTY) -> int:
    """After how many units of work, calls or passes, the model has returned something for each input."""
    whole_passes = facts.lengths is not None and facts.lengths.whole_passes
    together = next((value for it in plan.settings if it.lever == "batched-calls" for _, value in it.values), 1)
    calls = dict(facts.shared_calls).get(int(together), facts.inputs)
    return max(_FEWEST_CALLS, 1 if whole_passes else calls)


def metric_of(workload: Workload) -> str:
    """The user's own metric, as ``module:function``; empty if there is none."""
    words = workload.arguments if workload.kind == "inference" else ()
    return next((value for flag, value in pairwise(words) if flag == "--metric"), "")


class TaskQualityProver(Prover):
    """Compares a plan's outputs for each of the user's inputs with those of the model in float32 without a plan."""

    def __init__(self, trials: Trials, levers: Mapping[str, Lever], situation: Situation) -> None:
        super().__init__(trials, levers, situation)
        self._facts = situation.facts
        self._inputs = situation.facts.inputs
        self._compared: dict[Plan, TaskQuality | Failure] = {}
        self._reference: Mapping[str, Any] | Failure | None = None
        self._random: float | None = None
        self._engines: dict[Plan, EngineReport] = {}

    def cost(self, plan: Plan) -> float:
        """Those of the plan, and the first time also those of the reference and its weights."""
        if plan in self._compared:
            return 0.0
        costs = self._trials.costs
        known = self._reference is not None
        of_all = units_for_all_inputs(self._facts)  # as much work in fewer calls where inputs share them
        launches = [(plan, of_all), *([] if known else [(plans_of.EMPTY, of_all)] * 2)]
        return costs.of_launches(launches, at_once=1)

    def prove_exact(self, replicates: Sequence[Replicate]) -> TaskQuality:
        """As :meth:`prove`, since timing runs store no outputs."""
        plan = replicates[-1].runs[CANDIDATE].plan
        found = self.prove(plan)
        if isinstance(found, Failure):
            level = self._trials.options.quality
            return TaskQuality(
                verdict="not-verified", proof="exact", text=found.reason, level=level, inputs=self._inputs
            )
        return found

    def prove(self, plan: Plan) -> TaskQuality | Failure:
        """Compare the plan's outputs with the reference's; a Failure if either is missing."""
        if plan not in self._compared:
            self._compared[plan] = self._compare(plan)
        return self._compared[plan]

    def refused_metric(self) -> str:
        """Why the user's own metric cannot be used: it fails for the unmodified model; empty without a metric."""
        if not metric_of(self._trials.workload):
            return ""
        reference = self._reference_outputs()
        return reference.reason if isinstance(reference, Failure) else ""

    def engine_of(self, plan: Plan) -> EngineReport | None:
        """The engine that ran the model in the launch that compared the plan's outputs, with facts about its graph."""
        return self._engines.get(plan)

    def compared_runs(self, plan: Plan) -> tuple[Run, Run] | None:
        """None: there are no losses."""
        return None

    def _compare(self, plan: Plan) -> TaskQuality | Failure:
        reference = self._reference_outputs()
        if isinstance(reference, Failure):
            return reference
        run = self._launch(plan, (CaptureOutputs(),))
        candidate = captured_outputs(run)
        if isinstance(candidate, Failure):
            return candidate
        if run.engine is not None:
            self._engines[plan] = run.engine
        proof = self._proof_of(plan)
        calibrated = run.engine.calibrated_inputs if run.engine is not None else 0
        score, no_score = _score(metric_of(self._trials.workload), reference, candidate, calibrated)
        judged = judge_quality(
            compared_outputs(reference, candidate, first=calibrated),
            level=self._trials.options.quality,
            inputs=inputs_of(reference) - calibrated,
            random_weights=self._random,
            proof=proof,
            score=score,
        )
        if no_score and judged.verdict == "within":
            return msgspec.structs.replace(judged, verdict="not-verified", text=no_score)
        other = _other_precision(plan, run) or _not_compiled(plan, run) or self._other_engine(plan, run)
        if other and judged.verdict != "lost":
            return msgspec.structs.replace(judged, verdict="not-verified", text=f"{other} {judged.text}")
        eager = _eager_part(plan, run)
        return msgspec.structs.replace(judged, text=f"{judged.text} {eager}") if eager else judged

    def _other_engine(self, plan: Plan, run: Run) -> str:
        """A sentence if the plan's engine did not run the model, or not in the requested format."""
        asked = next((it for it in plan.settings if self._levers[it.lever].replaces_torch), None)
        if asked is None:
            return ""
        found, precision = run.engine, dict(asked.values).get("precision", "")
        if found is None:
            return f"{asked.lever} was requested, but the model ran without it."
        if not found.operators:
            return f"{found.engine} was requested, but it ran no operator of the model."
        if precision and found.precision != str(precision).partition("-")[0]:
            return f"{precision} was requested, but {found.engine} computed in {found.precision}."
        return ""

    def _reference_outputs(self) -> Mapping[str, Any] | Failure:
        if self._reference is None:
            run = self._launch(plans_of.EMPTY, (CaptureOutputs(in_float32=True),))
            self._reference = captured_outputs(run)
            if not isinstance(self._reference, Failure):
                self._random = 0.0 if run.facts.optimizers else self._random_share(self._reference)
        return self._reference

    def _random_share(self, reference: Mapping[str, Any]) -> float | None:
        """The share of weights initialised at random, for a program that does not train; None if a launch failed."""
        again = captured_outputs(self._launch(plans_of.EMPTY, (ShiftSeeds(), CaptureOutputs()), other_seed=True))
        return None if isinstance(again, Failure) else random_share(reference, again)

    def _launch(self, plan: Plan, instruments: tuple[Any, ...], *, other_seed: bool = False) -> Run:
        assignment = self._trials.assignment(plan)
        seed = assignment.seed + other_seed
        assignment = msgspec.structs.replace(assignment, seed=seed, instruments=instruments)
        units = 1 if other_seed else units_for_all_inputs(self._facts, plan)
        (run,) = self._trials.launch_together([(assignment, units)])
        return run


def captured_outputs(run: Run) -> Mapping[str, Any] | Failure:
    """What a launch stored; a Failure if it failed or its file cannot be read."""
    if not ran_through(run):
        return Failure(0, run.ending, f"In the launch that compares outputs: {ending_text(run.ending)}")
    try:
        return outputs_of(run.outputs_path)
    except Unreadable as error:
        return Failure(0, run.ending, str(error))


def inputs_of(archive: Mapping[str, Any]) -> int:
    """For how many inputs there are outputs: a script may make fewer calls than would be compared."""
    return len({number for number in (key.partition("/")[0] for key in archive) if number.isdecimal()})


def _score(
    name: str, reference: Mapping[str, Any], candidate: Mapping[str, Any], first: int
) -> tuple[ScoreQuality | str | None, str]:
    """The user's metric, and a sentence if it allows no comparison."""
    if not name:
        return None, ""
    try:
        return compared_scores(name, reference, candidate, first=first), ""
    except NoScore as error:
        return None, str(error)


def _other_precision(plan: Plan, run: Run) -> str:
    """A sentence if the model did not compute in the plan's number format."""
    wanted = {str(value) for it in plan.settings for name, value in it.values if name == "dtype"}
    computed = {run.facts.autocast_dtype, *(it.dtype for it in run.facts.models)}
    missing = sorted(wanted - computed)
    if not missing:
        return ""
    return f"{missing[0]} was requested, but the model computed in {', '.join(sorted(it for it in computed if it))}."


def _compiles(setting: Setting) -> bool:
    return setting.lever in _COMPILING or dict(setting.values).get("compile") is True


def _not_compiled(plan: Plan, run: Run) -> str:
    """A sentence if Dynamo silently compiled nothing."""
    if run.compile.graphs or not any(_compiles(it) for it in plan.settings):
        return ""
    return "torch.compile was requested, but no graph was compiled."


def _eager_part(plan: Plan, run: Run) -> str:
    """A sentence if Dynamo gave up on some calls, as for shapes beyond its limit of recompilations."""
    if not run.compile.fallbacks or not any(_compiles(it) for it in plan.settings):
        return ""
    reason = run.compile.fallbacks[0].reason.partition(". ")[0].rstrip(".")
    return f"torch.compile left some calls uncompiled: {reason}."
