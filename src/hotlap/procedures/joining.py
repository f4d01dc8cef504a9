"""Exact levers that join a plan on less evidence than others need: variables that are set before the process starts.

Such a lever costs a plan no proof, no time to start and no line of the script, and often gains a few per cent, which
one replicate cannot tell from noise. The verification decides: where there is room, the plan is launched without it
too, and it stays if steps look slower then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hotlap.experiment.prove import Prover
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever
from hotlap.procedures.compose import Composition
from hotlap.procedures.parts import Part
from hotlap.procedures.prospects import Prospect
from hotlap.procedures.screen import Screened, is_hopeful
from hotlap.records import Setting
from hotlap.trial.command import KEPT_WHILE_SWITCHING

_PRELOADING = "LD_PRELOAD"
"""The variable of a lever that loads another allocator."""


def with_kept_memory(
    trials: Trials, prover: Prover, found: Composition, prospects: Sequence[Prospect], noise: float
) -> Composition:
    """The same levers and, if any of them was measured in a process that switched, what that process had besides.

    It kept the memory that it freed, and what a lever gains may depend on that: half precision gave a small LSTM 1.3x
    with it, and next to nothing without (docs/benchmarks/crossover.md). Not if a first measurement of it was worse than
    the ``noise`` of a replicate explains, which is given as a share.
    """
    if not any(it.comparison is not None for it in found.parts):
        return found

    def joins(first: Screened) -> bool:
        return first.setting.lever == KEPT_WHILE_SWITCHING and is_hopeful(first, trials.options.delta, noise)

    return _with_those(trials, prover, found, prospects, joins)


def with_small_gains(trials: Trials, prover: Prover, found: Composition, prospects: Sequence[Prospect]) -> Composition:
    """The same levers and, next to them, those that looked faster in a first measurement, by no more than noise
    explains."""
    if not found.parts:
        return found
    least = 1 + trials.options.delta
    return _with_those(trials, prover, found, prospects, lambda first: (first.gain or 0.0) >= least)


def _with_those(
    trials: Trials,
    prover: Prover,
    found: Composition,
    prospects: Sequence[Prospect],
    joins: Callable[[Screened], bool],
) -> Composition:
    """The same and the exact variables that ``joins`` accepts by their first measurement.

    None where the objective has limits, which a lever may exceed that was not measured, nor next to another allocator,
    which knows nothing of the variables of the C library's.
    """
    levers = {it.lever.name: it.lever for it in prospects}
    chosen = [levers[it.lever].environment(it.setting) for it in found.parts if it.lever in levers]
    if trials.options.goal.objective.limits or any(_PRELOADING in it for it in chosen):
        return found
    firsts = [choices[0] for name, choices in found.left.items() if name in levers]
    exact = [it for it in firsts if prover.proof_for(it.setting) == "exact"]
    joined = [it.setting.lever for it in exact if _is_tuning(levers[it.setting.lever], it.setting) and joins(it)]
    return replace(
        found,
        parts=(*found.parts, *(Part(tuple(found.left[it]), joined=True) for it in joined)),
        left={name: it for name, it in found.left.items() if name not in joined},
        spare=tuple(it for it in found.spare if it.lever not in joined),
    )


def _is_tuning(lever: Lever, setting: Setting) -> bool:
    """Whether it is variables, and not another allocator."""
    variables = lever.environment(setting)
    return bool(variables) and _PRELOADING not in variables
