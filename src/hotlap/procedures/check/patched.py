"""Prove a patched script: it must be as fast as the levers were from outside, with the same results.

One side is the original with the patch's levers installed, the other the patched copy without a plan; they take turns.
Levers that are not in the patch are on neither side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import msgspec

from hotlap.errors import HotlapError
from hotlap.experiment.comparing import CANDIDATE
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.failures import Failure
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.plan_ahead import Launches
from hotlap.experiment.replicates import ANALYSES, Design, replicate, same_numbers
from hotlap.experiment.stages import begin, blank_study
from hotlap.experiment.trials import Arm, Trials
from hotlap.machine.label import machine_label
from hotlap.procedures.check.numbers import TwoScripts, unless_noisy
from hotlap.procedures.check.outputs import TwoScriptsOutputs
from hotlap.procedures.check.rule import analyse
from hotlap.procedures.forecast import comparison_forecast, proof_launches
from hotlap.records import (
    CheckVerdict,
    Completed,
    PatchProof,
    Quality,
    Replicate,
    Run,
    Sides,
    SpeedComparison,
    Stopped,
)
from hotlap.trial.executor import Executor


def prove_patch(
    sides: Sides,
    replaced: Collection[str],
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    of_calls: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> PatchProof:
    """Run both sides and compare them.

    ``replaced`` are the paths of the original's files, which the patched copy must not run; ``options.delta`` is the
    smallest slowdown that counts. With ``of_calls`` the script calls a model and does not train it.

    Raises :class:`HotlapError` if the original cannot be measured.
    """
    trials = Trials(sides.before, options, JournaledExecutor(executor, clock=clock))
    trials.step_source = "call" if of_calls else trials.step_source
    draft = StudyDraft(blank_study(sides.before, options, None), trials, None, on_progress)
    begin(trials, draft)
    trials.choose_rounds(1)
    proof = _Proof(sides, frozenset(replaced), trials, draft).run()
    machine = machine_label(draft.study.machine)
    return msgspec.structs.replace(proof, delta=options.delta, steps=options.parity_steps, machine=machine)


class _Proof:
    def __init__(self, sides: Sides, replaced: frozenset[str], trials: Trials, draft: StudyDraft) -> None:
        self._sides = sides
        self._replaced = replaced
        self._trials = trials
        self._draft = draft
        self._replicates: Sequence[Replicate] = ()

    def run(self) -> PatchProof:
        verdict, found = self._time()
        if isinstance(found, str):
            return PatchProof(text=found, refusal=found)
        self._draft.report("parity", "Does the patched copy produce the same results?")
        numbers = self._same_numbers()
        if isinstance(numbers, Failure):
            return PatchProof(text=numbers.reason, refusal=f"The patched copy failed. {numbers.reason}", speed=found)
        return PatchProof(
            text=f"{_numbers_text(numbers)} {_speed_text(found, verdict)}",
            refusal=_refusal(numbers, found, verdict),
            numbers=numbers,
            speed=found,
        )

    def _proof_launches(self) -> Launches:
        losses = TwoScripts(self._trials, self._sides)
        of_calls = self._trials.step_source == "call"
        return proof_launches(0, 0.0) if of_calls else proof_launches(losses.launches, losses.cost())

    def _same_numbers(self) -> Quality | Failure:
        if self._trials.step_source != "call":
            losses = TwoScripts(self._trials, self._sides).prove(self._replicates)
            return losses if isinstance(losses, Failure) else unless_noisy(losses)
        facts = self._replicates[0].runs[0].facts
        return TwoScriptsOutputs(self._trials, self._sides, facts).prove(self._replicates)

    # -- turns --------------------------------------------------------------------------------

    def _time(self) -> tuple[CheckVerdict, SpeedComparison | str]:
        """Take replicates until an analysis decides. Return the comparison, or why there is none."""
        delta, sides = self._trials.options.delta, self._sides
        before, after = Arm(sides.before_plan), Arm(sides.now_plan, workload=sides.now)
        design = Design(
            arms=(before, before, after),
            purpose="patch",
            accept=self._accept,
            adapts_rounds=True,
            label="the patched copy against the levers",
        )
        plans, first = [it.plan for it in (before, before, after)], ANALYSES[0]
        self._draft.plan_ahead("trial", comparison_forecast(self._trials, plans, first, self._proof_launches()))
        taken = replicate(
            self._trials, self._draft, design, lambda replicates: analyse(replicates, None, delta)[0] != "inconclusive"
        )
        if taken.failure is not None:
            return "failed", self._failed(taken.failure)
        self._replicates = taken.replicates
        verdict, _, _, found = analyse(self._replicates, None, delta)
        return verdict, found

    def _accept(self, turns: Replicate) -> Failure | None:
        self._check_copy(turns.runs[CANDIDATE])
        return same_numbers(turns)

    def _failed(self, failure: Failure) -> str:
        """Why the patched copy failed. Raises :class:`HotlapError` if the original did."""
        if isinstance(failure.ending, Stopped):
            return f"The patched copy diverged. {failure.reason}"
        if failure.arm == CANDIDATE and not isinstance(failure.ending, Completed):
            return f"The patched copy does not run to completion: {failure.reason}"
        if isinstance(failure.ending, Completed):
            raise HotlapError(
                f"The patch cannot be proved. {failure.reason}",
                remedy="Let the script train longer, or leave the proof out with --no-proof.",
            )
        raise HotlapError(
            f"With the plan's levers the script failed, so the patch cannot be compared. {failure.reason}",
            remedy="Run the search again: the machine or the script has changed since.",
        )

    def _check_copy(self, run: Run) -> None:
        """Raise :class:`HotlapError` if the copy ran the original's files: they would be compared with themselves."""
        taken = sorted({it.file for it in run.facts.sites} & self._replaced)
        if not taken:
            return
        raise HotlapError(
            f"The patched copy still used the unpatched {taken[0]}, because that is installed in place.",
            remedy="Put its folder on the path (PYTHONPATH), or leave the proof out with --no-proof.",
        )


# -- words ----------------------------------------------------------------------------------------


def _refusal(numbers: Quality, found: SpeedComparison, verdict: CheckVerdict) -> str:
    if numbers.verdict == "lost":
        return f"The patched copy does not produce the same results as the levers. {numbers.text}"
    if verdict == "failed":
        return f"The patched copy is slower than the levers: {_interval(found)}."
    return ""


def _numbers_text(numbers: Quality) -> str:
    return f"Numbers: {numbers.text}"


def _speed_text(found: SpeedComparison, verdict: CheckVerdict) -> str:
    words = {
        "passed": "as fast as the levers",
        "failed": "slower than the levers",
        "inconclusive": "not distinguishable from the levers",
    }
    return f"Speed: {words[verdict]}, {_interval(found)}."


def _interval(found: SpeedComparison) -> str:
    it = found.speedup
    confidence = f"{100 * found.confidence:g} % interval {it.low:.3f} to {it.high:.3f}"
    return f"{it.value:.3f}x ({confidence}, {found.replicates} replicates of {found.rounds} rounds)"
