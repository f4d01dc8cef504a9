"""Estimate peak memory by batch size and by lever, on tensors without data.

Each peak is a launch of the script with the same levers that a trial installs, so that an estimate and a trial differ
only in the data. Sharding is arithmetic on the result.
"""

from __future__ import annotations

import msgspec

from hotlap import plan as plans_of
from hotlap.errors import ScriptError
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.observe import command_line
from hotlap.experiment.options import EstimateChoices
from hotlap.experiment.plan_ahead import Forecast, Launches
from hotlap.experiment.trials import Trials
from hotlap.levers.api import all_levers
from hotlap.levers.support.situations import make_setting
from hotlap.procedures.batch.changing import Changer, changer_of
from hotlap.records import (
    AccountMemory,
    EstimatedPeak,
    FakeTensors,
    Machine,
    MemoryEstimate,
    Observe,
    Plan,
    Run,
    Setting,
    Situation,
    Skipped,
)
from hotlap.wording import ending_text

_STEPS = 3
"""The first step creates the optimizer's state, the second has the peak, and the third confirms it."""

_TRIED = (
    make_setting("mixed-precision", dtype="bfloat16"),
    make_setting("activation-checkpointing", share="all"),
    make_setting("accumulation", micro_batches=2),
    make_setting("accumulation", micro_batches=4),
    make_setting("fused-optimizer", implementation="fused"),
)
_TOGETHER = ("mixed-precision", "activation-checkpointing")
_NEEDS_NUMBERS = "Its model or loss probably depends on numbers; `hotlap memory` measures it on this machine."
_NO_DEVICE = (
    "It asks for a device that is not here. Let it compute on the CPU where there is none, as with "
    '`device = "cuda" if torch.cuda.is_available() else "cpu"`: sizes are the same.'
)
_DEVICE_IS_MISSING = (
    "not compiled with CUDA",
    "No CUDA GPUs",
    "Found no NVIDIA driver",
    "not linked with support for mps",
)
_RECURRENT = (
    "Recurrent layers are estimated with the workspace of the CPU's kernels. Those of a device keep other reserves for "
    "the backward pass, whose size is known only there."
)


def estimate_memory(trials: Trials, draft: StudyDraft, machine: Machine, choices: EstimateChoices) -> None:
    """Fill in the study's ``memory_estimate``, row by row.

    Raises :class:`ScriptError` if the unmodified script does not run on tensors without data.
    """
    first = _launch(trials, plans_of.EMPTY, None, 0)
    draft.update(baseline=first)
    draft.warn(*first.notes)
    if first.memory is None:
        failure = _failure(first)
        raise ScriptError(
            f"The script cannot be run on tensors without data: {failure}",
            where=command_line(trials.workload),
            remedy=_NO_DEVICE if any(it in failure for it in _DEVICE_IS_MISSING) else _NEEDS_NUMBERS,
        )
    if choices.device_memory_bytes and any(it.recurrent for it in first.facts.models):
        draft.warn(_RECURRENT)
    _Estimator(trials, draft, machine, choices, first).run()


def plans_for(situation: Situation) -> list[Plan]:
    """The plans whose peaks are estimated: each lever by itself, and those of activations together."""
    possible = [it for it in _TRIED if _is_possible(it, situation)]
    together = tuple(it for it in possible if it.lever in _TOGETHER)
    return [Plan(settings=(it,)) for it in possible] + [Plan(settings=together)] * (len(together) > 1)


def _is_possible(setting: Setting, situation: Situation) -> bool:
    """Whether a lever could change anything; something that only this machine lacks is no obstacle elsewhere."""
    why = all_levers()[setting.lever].obstacle(situation)
    return why is None or (setting.lever == "mixed-precision" and isinstance(why, Skipped) and not why.already)


class _Estimator:
    def __init__(
        self, trials: Trials, draft: StudyDraft, machine: Machine, choices: EstimateChoices, first: Run
    ) -> None:
        self._trials = trials
        self._draft = draft
        self._choices = choices
        self._first = first
        self._situation = Situation(facts=first.facts, machine=machine)
        self._changer = changer_of(trials.workload, first.facts, choices.flag)
        self._found = MemoryEstimate(device_memory_bytes=choices.device_memory_bytes)

    def run(self) -> None:
        """The script's own batch size, the requested ones, then each lever at the largest of them."""
        own = self._changer.own if isinstance(self._changer, Changer) else 0
        self._note(_peak(self._first, plans_of.EMPTY, own))
        sizes = [it for it in sorted(set(self._choices.batch_sizes)) if it != own]
        largest = max(sizes, default=own) if own else 0
        wanted = [(plans_of.EMPTY, it) for it in sizes] + [(it, largest) for it in plans_for(self._situation)]
        seconds = len(wanted) * self._trials.spent_seconds  # each is a launch like the first one
        self._draft.plan_ahead("trial", Forecast.of(Launches(len(wanted), seconds, "for batch sizes and levers")))
        for plan, size in wanted:
            self._estimate(plan, size)
        if self._choices.ranks > 1:
            plain = next(it for it in self._found.peaks if it.batch_size == largest)
            self._note(self._sharded(plain, self._choices.ranks))

    def _estimate(self, plan: Plan, size: int) -> None:
        if isinstance(self._changer, str) and size:
            self._note(EstimatedPeak(batch_size=size, plan=plan, error=self._changer))
            return
        self._draft.report("trial", " ".join((*(it.lever for it in plan.settings), f"batch size {size}")))
        changer = self._changer if isinstance(self._changer, Changer) else None
        self._note(_peak(_launch(self._trials, plan, changer, size), plan, size))

    def _sharded(self, plain: EstimatedPeak, ranks: int) -> EstimatedPeak:
        """Divide parameters, gradients and optimizer state; the largest module's parameters and gradients are gathered
        as a whole (Rajbhandari et al. 2020, stage 3)."""
        amounts = plain.amounts
        modules = self._first.memory.modules if self._first.memory is not None else ()
        gathered = 2 * max((it.amounts.parameters for it in modules), default=0)
        state = amounts.parameters + amounts.gradients + amounts.optimizer_state
        peak_bytes = plain.peak_bytes - state + -(-state // ranks) + gathered
        return EstimatedPeak(batch_size=plain.batch_size, ranks=ranks, peak_bytes=min(plain.peak_bytes, peak_bytes))

    def _note(self, peak: EstimatedPeak) -> None:
        self._found = msgspec.structs.replace(self._found, peaks=(*self._found.peaks, peak))
        self._draft.update(memory_estimate=self._found)


def _launch(trials: Trials, plan: Plan, changer: Changer | None, size: int) -> Run:
    resized = changer.instruments(size) if changer is not None else ()
    workload = changer.workload(size) if changer is not None else None
    assignment = trials.assignment(plan) if plan.settings else trials.first_assignment()
    changed = msgspec.structs.replace(
        assignment,
        workload=workload or assignment.workload,
        instruments=(Observe(), *resized, AccountMemory(steps=_STEPS), FakeTensors()),
    )
    return trials.launch(changed, steps=_STEPS + 1)


def _peak(run: Run, plan: Plan, size: int) -> EstimatedPeak:
    if run.memory is None:
        return EstimatedPeak(batch_size=size, plan=plan, error=_failure(run))
    amounts = run.memory.peak
    return EstimatedPeak(batch_size=size, plan=plan, peak_bytes=amounts.total - amounts.other, amounts=amounts)


def _failure(run: Run) -> str:
    return getattr(run.ending, "error", "") or ending_text(run.ending)
