"""The search for what makes the calls of a model faster, and is still right.

It is the search of :mod:`hotlap.procedures.search` with other levers and another proof: a call is a step, and what has
to stay the same is what the model returns. There is no loader and no backward, so that no ceilings are measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from hotlap import plan as plans_of
from hotlap.experiment.draft import OnProgress, say_nothing
from hotlap.experiment.options import Options, check
from hotlap.experiment.prove_outputs import TaskQualityProver
from hotlap.experiment.stages import begin, guarded, opened
from hotlap.experiment.trials import Failure
from hotlap.levers.api import Lever, inference_levers
from hotlap.procedures.budget import reserve_for_first_answer
from hotlap.procedures.search import Search
from hotlap.records import Comparison, Estimate, Finding, NoGain, Quality, Situation, Study, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor


def infer(
    workload: Workload,
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    journal: Journal | None = None,
    levers: Mapping[str, Lever] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Study:
    """Search for the plan that makes the target's calls fastest with outputs that keep the quality asked for.

    Budget, journal, interruption, quick looks and what is raised are as of :func:`hotlap.procedures.search.tune`.
    """
    known = inference_levers() if levers is None else levers
    check(options, known)
    trials, draft = opened(workload, options, executor, on_progress, journal, clock, kind="inference")
    trials.cuts_sets = True
    search = _InferenceSearch(trials, draft, known)
    return guarded(draft, search.run, search.interrupted)


class _InferenceSearch(Search):
    def _understand(self) -> None:
        machine, observation = begin(self._trials, self._draft)
        self._baseline = observation.run
        self._baseline_situation = self._situation = Situation(
            facts=observation.facts,
            machine=machine,
            account=observation.account,
            device_peak_bytes=observation.run.device_peak_bytes,
            host_peak_bytes=observation.run.host_peak_bytes,
        )
        self._stages_seconds = self._trials.spent_seconds
        self._trials.reserve_seconds = reserve_for_first_answer(self._trials)
        self._prover = TaskQualityProver(self._trials, self._levers, self._situation)

    def _find_with_outcomes(self) -> None:
        """A lever that rounds otherwise, and yet changes no bit and no time, has probably not run at all."""
        found: list[Finding] = []
        for it in self._draft.study.outcomes:
            verdict = it.verdict
            if not (isinstance(verdict, NoGain) and verdict.comparison is not None and it.setting is not None):
                continue
            owes = self._prover.proof_for(it.setting)
            if owes == "exact" or not self._changes_no_time(verdict.comparison):
                continue
            plan = plans_of.with_setting(plans_of.EMPTY, it.setting)
            quality = self._prover.prove(plan) if self._trials.fits(self._prover.cost(plan)) else None
            if quality is not None and not isinstance(quality, Failure) and quality.verdict == "exact":
                found.append(_fallback(it.lever, quality))
        if found:
            self._draft.update(findings=tuple(found))

    def _changes_no_time(self, comparison: Comparison) -> bool:
        """Whether the whole interval lies within the smallest gain worth having, either way."""
        ratio, most = comparison.speed.speedup, 1 + self._trials.options.delta
        return 1 / most < ratio.low and ratio.high < most


def _fallback(lever: str, quality: Quality) -> Finding:
    return Finding(
        rule="silent-fallback",
        kind="risk",
        share=Estimate(value=0.0, low=0.0, high=0.0),
        title=f"{lever} changed neither time nor outputs: the model probably ran without it.",
        evidence=(quality.text,),
        remedy="Look for warnings in the run's output; what was asked for may not apply to this model.",
    )
