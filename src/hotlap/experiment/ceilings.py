"""Measure upper bounds: the model alone, and the machine's matrix multiplication rate.

The loader alone is in :mod:`hotlap.experiment.loader_alone`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import msgspec

from hotlap import plan as plans_of
from hotlap.diagnose.api import Group, all_rules
from hotlap.experiment import loader_alone
from hotlap.experiment.costs import FEWEST_ROUNDS, Shape
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.observe import Observation, account_of
from hotlap.experiment.plan_ahead import Launches
from hotlap.experiment.quiet import quietly, runs_of_replicate
from hotlap.experiment.trials import Arm, Trials
from hotlap.levers.api import Lever
from hotlap.measure.student import quantile
from hotlap.records import (
    Ceiling,
    Machine,
    Measurement,
    PhaseAccount,
    Plan,
    ReplayBatch,
    Run,
    ScriptFacts,
    Setting,
    Situation,
)
from hotlap.wording import number

COMPUTE: frozenset[Group] = frozenset({"compute", "compile", "host"})
"""Groups of rules whose levers make no loader faster."""

_MODEL_ARMS = (plans_of.EMPTY, plans_of.EMPTY)
"""The script, and the script with its first batch replayed from memory."""

_MODEL_SHARE = 0.1
"""Of the time that is left."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ceilings, and the situation that levers get.

    ``disturbed`` are the measurements behind it that other processes disturbed. ``to_sweep`` are the settings with
    which the loader is still to be timed alone.
    """

    situation: Situation
    flop_utilisation: float | None = None
    disturbed: tuple[Measurement, ...] = ()
    to_sweep: tuple[Setting, ...] = ()

    @property
    def trusted(self) -> Situation:
        """The situation without disturbed ceilings: no lever may be skipped because of other processes.

        Every bound uses the script's time account, so none remains if that was disturbed.
        """
        every = self.situation.ceilings
        kept = () if "account" in self.disturbed else tuple(it for it in every if it.name not in self.disturbed)
        return msgspec.structs.replace(self.situation, ceilings=kept)


def measure_ceilings(trials: Trials, draft: StudyDraft, observation: Observation, machine: Machine) -> Bounds:
    """Time the model without the loader, if the budget allows. The loader without the model is timed at the end of the
    profiled launch (:func:`hotlap.experiment.profiled_launch.take_profile`), with the settings ``to_sweep``."""
    run, phases = observation.run, observation.account
    situation = _situation(trials, observation, machine)
    ceilings: list[Ceiling] = []
    to_sweep: tuple[Setting, ...] = ()
    if run.facts.training_loaders:
        to_sweep = loader_alone.settings_to_sweep(trials, situation)
        ceilings += () if to_sweep else loader_alone.by_account(situation)
        if _shows_the_model(run.facts, phases, trials.options.delta):
            ceilings += _model_by_account(phases)
        else:
            ceilings += _model_ceiling(trials, draft, phases)
    utilisation, matmul = flop_utilisation(run.facts, machine, phases, draft)
    ceilings += matmul
    situation = msgspec.structs.replace(situation, ceilings=tuple(ceilings))
    disturbed = tuple(it.measured for it in draft.study.disturbances)
    return Bounds(situation, utilisation, disturbed, to_sweep)


def ceilings_launches(trials: Trials, observation: Observation) -> Launches:
    """The launches of :func:`measure_ceilings`, with what they take."""
    if not observation.facts.training_loaders:
        return Launches(0, 0.0, "")
    if _shows_the_model(observation.facts, observation.account, trials.options.delta):
        return Launches(0, 0.0, "")
    seconds = _model_seconds(trials, _model_shape(trials))
    return Launches(len(_MODEL_ARMS), seconds, "for the model alone", spare=True)


def sweep_seconds(trials: Trials, observation: Observation, machine: Machine) -> float:
    """What timing the loader alone adds to the profiled launch; 0 if no setting is worth that."""
    situation = _situation(trials, observation, machine)
    return loader_alone.seconds_of(loader_alone.settings_to_sweep(trials, situation))


def _situation(trials: Trials, observation: Observation, machine: Machine) -> Situation:
    run = observation.run
    return Situation(
        facts=run.facts,
        machine=machine,
        account=observation.account,
        device_peak_bytes=run.device_peak_bytes,
        host_peak_bytes=run.host_peak_bytes,
        sample_cache_bytes=trials.options.sample_cache_bytes,
    )


def note_bounds(draft: StudyDraft, bounds: Bounds) -> None:
    """Write the measurements into the study."""
    draft.update(
        ceilings=bounds.situation.ceilings,
        model_flop_utilisation=bounds.flop_utilisation,
        loader_rates=bounds.situation.loader_rates,
    )


def answers_only(lever: Lever, groups: Collection[Group]) -> bool:
    """Whether all rules that the lever addresses belong to these groups; False if it names none, or an unknown one.

    The rules show what a lever speeds up.
    """
    rules = all_rules()
    return bool(lever.addresses) and all(it in rules and rules[it].group in groups for it in lever.addresses)


def situation_with(situation: Situation, plan: Plan, run: Run, levers: Mapping[str, Lever]) -> Situation:
    """The situation with ``plan`` switched on: the time account of ``run``, the format in which it computed, and the
    ceilings that the plan keeps.

    The loader alone was timed without the plan. Its ceiling stays only if no lever of the plan can make loading faster.
    """
    phases, _ = account_of(run)
    per_sample = phases.wall / max(1e-9, phases.samples_per_step)
    loads_as_before = all(
        answers_only(levers[it.lever], COMPUTE) and not levers[it.lever].environment(it) for it in plan.settings
    )
    ceilings = tuple(
        _rebound(it, per_sample) for it in situation.ceilings if it.name == "loader-alone" and loads_as_before
    )
    autocast_dtype = run.facts.autocast_dtype or situation.facts.autocast_dtype
    return msgspec.structs.replace(
        situation,
        facts=msgspec.structs.replace(situation.facts, autocast_dtype=autocast_dtype),
        account=phases,
        ceilings=ceilings,
        device_peak_bytes=max(run.device_peak_bytes, situation.device_peak_bytes),
        host_peak_bytes=max(run.host_peak_bytes, situation.host_peak_bytes),
    )


# ---------------------------------------------------------------------------------------------
# The model alone
# ---------------------------------------------------------------------------------------------


def _shows_the_model(facts: ScriptFacts, phases: PhaseAccount, delta: float) -> bool:
    """Whether the time account already shows what the model alone takes, so that it needs no launches.

    So it is on a CPU if the training process fetches its batches itself: nothing goes on at the same time. Loading
    leaves other data in the caches, so that a step may also compute faster where another process loads. On a device
    the ceiling bounds no lever if steps wait less for data than the smallest gain worth having.
    """
    if facts.device.partition(":")[0] == "cpu":
        return all(it.workers == 0 for it in facts.training_loaders)
    return phases.seconds_in("data_wait") <= delta * phases.wall


def _model_by_account(phases: PhaseAccount) -> list[Ceiling]:
    computing = phases.wall - phases.seconds_in("data_wait")
    if computing <= 0:
        return []
    per_sample = computing / max(1e-9, phases.samples_per_step)
    text = (
        f"By the time account, the model without the wait for data trains {number(1 / per_sample)} samples per second; "
        "where another process loads it may be faster still, since its data then stays in the caches."
    )
    bound = max(1.0, phases.wall / computing)
    return [Ceiling(name="model-alone", seconds_per_sample=per_sample, bound_speedup=bound, text=text)]


def _model_shape(trials: Trials) -> Shape | None:
    """Shorter blocks than usual, or the shortest, where the usual ones (None) take a notable share of the time that is
    left: a bound is worth less of a short budget than what it bounds."""
    usual = shape = trials.costs.shape
    while _model_seconds(trials, shape) > _MODEL_SHARE * trials.left_seconds and shape.halved() != shape:
        shape = shape.halved()
    return None if shape == usual else shape


def _model_seconds(trials: Trials, shape: Shape | None) -> float:
    return trials.costs.of_replicate(_MODEL_ARMS, FEWEST_ROUNDS, shape)


def _model_ceiling(trials: Trials, draft: StudyDraft, phases: PhaseAccount) -> list[Ceiling]:
    """Time the script with its first batch replayed from memory, next to the script: no loader can save that time."""
    shape = _model_shape(trials)
    if not trials.fits(_model_seconds(trials, shape)):
        draft.warn("The model alone was not timed: the budget is too small.")
        return []
    draft.report("ceilings", "The model alone, with its first batch replayed from memory")
    arms = [Arm(), Arm(instruments=(ReplayBatch(),))]
    turns, disturbed = quietly(
        trials,
        draft,
        "model-alone",
        lambda patience: trials.take_replicate(
            arms, rounds=FEWEST_ROUNDS, purpose="model alone", shape=shape, patience_seconds=patience
        ),
        runs_of_replicate,
        stage="ceilings",
    )
    draft.disturbed("model-alone", disturbed)
    if isinstance(turns, Failure):
        draft.warn(f"The model could not be timed alone. {turns.reason}")
        return []
    ratios = [math.log(own / alone) for own, alone in zip(*turns.rounds, strict=True)]
    bound = max(1.0, math.exp(fmean(ratios)))
    per_sample = phases.wall / max(1e-9, phases.samples_per_step) / bound
    text = f"The model alone, fed from memory, trains {number(1 / per_sample)} samples per second."
    ceiling = Ceiling(name="model-alone", seconds_per_sample=per_sample, bound_speedup=bound, text=text)
    return [msgspec.structs.replace(ceiling, bound_interval=_interval_of(ratios))]


def _interval_of(log_ratios: Sequence[float]) -> tuple[float, float] | None:
    """A 95 % interval of the speedup by Student's t over the rounds; None for a single one."""
    rounds = len(log_ratios)
    if rounds < 2:
        return None
    mean = fmean(log_ratios)
    margin = quantile(0.975, rounds - 1) * stdev(log_ratios) / math.sqrt(rounds)
    return math.exp(mean - margin), math.exp(mean + margin)


# ---------------------------------------------------------------------------------------------
# The machine's rate
# ---------------------------------------------------------------------------------------------


def flop_utilisation(
    facts: ScriptFacts, machine: Machine, phases: PhaseAccount, draft: StudyDraft
) -> tuple[float | None, list[Ceiling]]:
    """Model FLOP utilisation: operations per second of a step (by the formulas of ``torch.utils.flop_counter``), as a
    share of the matrix multiplication rate that this machine reached in the same number format.

    A rate below that of the step itself is not a ceiling, and is left out with a warning. A doubtful rate bounds
    nothing.
    """
    flops = max((it.flops_per_step for it in facts.models if it.flops_per_step), default=None)
    device = facts.device.partition(":")[0]
    rates = dict(machine.ceilings.matmul_flops_per_second)
    dtype = _fastest_format(facts)
    rate = rates.get(f"{device}:{dtype}") or rates.get(f"{device}:float32" if dtype == "tf32" else "")
    if not flops or not rate or phases.wall <= 0:
        return None, []
    least = flops / rate
    if least > phases.wall:
        draft.warn(
            f"The matmul ceiling is left out: at that rate a step's {flops:.3g} floating-point operations take at "
            f"least {1000 * least:.3g} ms, but the step takes {1000 * phases.wall:.3g} ms."
        )
        return None, []
    text = (
        f"A step's {flops:.3g} floating-point operations take at least {1000 * least:.3g} ms at the {dtype} rate "
        f"of {rate:.3g} per second measured on this machine."
    )
    doubt = dict(machine.ceilings.doubts).get(device, "")
    if doubt:
        return None, [Ceiling(name="matmul", text=f"{text} That rate is uncertain. {doubt}")]
    bound = max(1.0, phases.wall / least)
    per_sample = least / max(1e-9, phases.samples_per_step)
    return least / phases.wall, [Ceiling(name="matmul", seconds_per_sample=per_sample, bound_speedup=bound, text=text)]


def _fastest_format(facts: ScriptFacts) -> str:
    """The number format in which the step's products may be computed.

    On CUDA that is TensorFloat-32 for float32 matrices if the script allows it, and for float32 convolutions unless it
    forbids it.
    """
    dtype = facts.autocast_dtype or next((it.dtype for it in facts.models), "float32")
    return "tf32" if dtype == "float32" and facts.allows_tf32 else dtype


def _rebound(ceiling: Ceiling, seconds_per_sample: float) -> Ceiling:
    if not ceiling.seconds_per_sample:
        return ceiling
    return msgspec.structs.replace(ceiling, bound_speedup=max(1.0, seconds_per_sample / ceiling.seconds_per_sample))
