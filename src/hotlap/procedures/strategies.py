"""Choose between strategies for several ranks by what is known before a trial: which fit, and which may win.

The script's own step, its trace, what it exchanges and the measured collectives of this machine predict what each
other strategy would take and hold (:mod:`hotlap.scaling.strategies`). One that cannot win for the goal, however far off
earlier predictions were, is not tried; nor is one that does not fit. The others are tried in the predicted order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.options import Options
from hotlap.experiment.trials import Trials
from hotlap.levers.support.data_parallel import wrappers
from hotlap.levers.support.sharded_by_script import sharded
from hotlap.objective import PEAKS
from hotlap.procedures.prospects import Prospect
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    Cluster,
    CollectiveRates,
    Link,
    MeasuredStep,
    Objective,
    Outcome,
    Setting,
    Situation,
    Skipped,
    StrategyChoice,
    StrategyForecast,
    ValidatedError,
)
from hotlap.scaling import step_of
from hotlap.scaling.arithmetic import peak_bytes
from hotlap.scaling.published import validated_errors
from hotlap.scaling.strategies import Comparer, Way, ratio_error
from hotlap.study import MEASURED_STEP
from hotlap.traces import read_trace
from hotlap.wording import ratio, share

_WAYS: Mapping[str, Callable[[Setting], Way]] = {
    "sharded-optimizer": lambda setting: Way("zero-1"),
    "fully-sharded": lambda setting: Way("fsdp2", reshards=bool(dict(setting.values)["reshard_after_forward"])),
    "replicated-weights": lambda setting: Way("ddp"),
    "reshard-after-forward": lambda setting: Way("fsdp2", reshards=bool(dict(setting.values)["reshard"])),
}
"""The levers that apply a strategy, and which one a setting of theirs is."""

_FOR_MEMORY = frozenset({"fully-sharded"})
"""Levers that usually cost time: for speed they are tried only where a prediction does not rule out a gain."""

_NOT_PREDICTED = (
    "It usually makes steps longer, and what it would take here was not predicted: it is tried for memory only."
)

_WITHOUT = "Strategies are tried without a prediction:"


@dataclass(frozen=True, slots=True)
class _Own:
    """The script's own strategy, and what one rank holds: its measured peak (0: not known), and how many copies of the
    gradients."""

    way: Way
    peak_bytes: int
    copies: int


def choose_strategies(
    trials: Trials, draft: StudyDraft, situation: Situation, prospects: Sequence[Prospect], rates: CollectiveRates
) -> StrategyChoice | None:
    """Predict the strategies among the prospects, and note the choice in the study. None, with a warning that says why,
    where nothing can be predicted; without one where there is nothing to choose or no rate was measured."""
    settings = [one for it in prospects if it.lever.name in _WAYS for one in it.settings]
    own = _own(situation)
    if not settings or own is None or not rates.rates:
        return None
    step = _step(draft, situation, own)
    if step is None:
        draft.warn(f"{_WITHOUT} no trace of a backward pass was recorded.")
        return None
    ranks = situation.facts.processes
    try:
        comparer = Comparer(step, _cluster(situation, rates), ranks, own.way, copies=own.copies)
    except ValueError as error:
        draft.warn(f"{_WITHOUT} {error}.")
        return None
    validated = validated_errors() if _is_like_validated(situation) else ()
    forecasts = [_forecast(it, comparer, validated, ranks, situation) for it in settings]
    choice = StrategyChoice(
        ranks=ranks,
        strategy=own.way.strategy,
        reshards=own.way.reshards if own.way.strategy == "fsdp2" else None,
        step_seconds=situation.account.wall,
        exposed_seconds=comparer.exposed_seconds,
        peak_bytes=own.peak_bytes,
        forecasts=tuple(_in_order(_judged(forecasts, own.peak_bytes, trials.options), trials.options.objective)),
        measured=rates.rates,
        hidden_share=rates.hidden_share,
        validated=_where_validated(validated, ranks),
    )
    draft.update(strategies=choice)
    return choice


def narrowed(
    prospects: Sequence[Prospect], choice: StrategyChoice | None, objective: Objective
) -> tuple[list[Prospect], list[Outcome]]:
    """The prospects without the settings that are not to be tried, strategies in the predicted order; and the levers
    that have no setting left, each with its reason."""
    known = {it.setting: it for it in choice.forecasts} if choice is not None else {}
    kept: list[Prospect] = []
    left_out: list[Outcome] = []
    for prospect in prospects:
        possible, reason = _possible(prospect, known, objective)
        if not possible:
            left_out.append(Outcome(lever=prospect.lever.name, verdict=Skipped(reason=reason)))
            continue
        kept.append(replace(prospect, settings=possible))
    places = [place for place, it in enumerate(kept) if it.settings[0] in known]
    ordered = sorted((kept[it] for it in places), key=lambda it: known[it.settings[0]].order)
    for place, prospect in zip(places, ordered, strict=True):
        kept[place] = prospect
    return kept, left_out


def _possible(
    prospect: Prospect, known: Mapping[Setting, StrategyForecast], objective: Objective
) -> tuple[tuple[Setting, ...], str]:
    """The settings to be tried, and why there is none."""
    settings = prospect.settings
    unpredicted = not any(it in known for it in settings)
    if prospect.lever.name in _FOR_MEMORY and objective.metric == SECONDS_PER_SAMPLE and unpredicted:
        return (), _NOT_PREDICTED
    possible = [it for it in settings if it not in known or known[it].order]
    possible.sort(key=lambda it: known[it].order if it in known else 0)
    return tuple(possible), " ".join(dict.fromkeys(known[it].reason for it in settings if it in known))


# ---------------------------------------------------------------------------------------------
# What is known before
# ---------------------------------------------------------------------------------------------


def _own(situation: Situation) -> _Own | None:
    """The script's own strategy; None where it has another, or one that is not known well enough."""
    if situation.facts.processes < 2:
        return None
    ways = {it.reshards for it in sharded(situation) if it.api == "fsdp2"} - {None}
    peak = situation.device_peak_bytes or situation.host_peak_bytes // situation.facts.processes
    if len(ways) == 1 and not wrappers(situation):
        return _Own(Way("fsdp2", reshards=bool(ways.pop())), peak, copies=2)
    if not ways and wrappers(situation) and not sharded(situation):
        in_buckets = all(it.gradient_as_bucket_view for it in wrappers(situation))
        return _Own(Way("ddp"), peak, copies=1 if in_buckets else 2)
    return None


def _step(draft: StudyDraft, situation: Situation, own: _Own) -> MeasuredStep | None:
    """The measured step with the memory of one rank, also where the trace that a resumed search made is gone."""
    shape = draft.attachment(MEASURED_STEP, MeasuredStep) or _traced_step(draft, situation)
    if shape is None:
        return None
    draft.attach(MEASURED_STEP, shape)
    facts = situation.facts
    gradients = sum(it.size_bytes for it in shape.gradients)
    states = [it.state_bytes for it in facts.optimizers]
    known = msgspec.structs.replace(
        shape,
        parameter_bytes=sum(it.parameter_bytes for it in facts.models) or gradients,
        gradient_bytes=gradients,
        optimizer_bytes=sum(it or 0 for it in states),
    )
    if not own.peak_bytes or None in states:
        return known
    held = _held_bytes(known, own, facts.processes)
    return msgspec.structs.replace(known, activation_bytes=max(0, own.peak_bytes - held))


def _held_bytes(step: MeasuredStep, own: _Own, ranks: int) -> int:
    """What a rank holds besides activations and everything else that no strategy shares."""
    bare = msgspec.structs.replace(step, activation_bytes=0)
    return peak_bytes(own.way.strategy, bare, ranks, copies=own.copies, reshards=own.way.reshards)


def _traced_step(draft: StudyDraft, situation: Situation) -> MeasuredStep | None:
    if not draft.study.trace_path:
        return None
    facts = situation.facts
    return step_of(
        read_trace(draft.study.trace_path, with_inputs=True),
        situation.account,
        backwards=facts.backwards_per_step,
        units=1 + max((it.count for model in facts.models for it in model.repeated), default=0),
    )


def _cluster(situation: Situation, rates: CollectiveRates) -> Cluster:
    """This machine, whose collectives were measured between as many processes as the script has."""
    machine, ranks = situation.machine, situation.facts.processes
    not_used = Link(bytes_per_second=1.0)
    return Cluster(
        devices_per_node=ranks,
        within=not_used,
        between=not_used,
        measured=rates.rates,
        hidden_share=1.0 if rates.hidden_share is None else rates.hidden_share,
        cores=machine.cores if _on_processor(situation) else 0,
    )


def _on_processor(situation: Situation) -> bool:
    return situation.facts.device.partition(":")[0] == "cpu"


def _is_like_validated(situation: Situation) -> bool:
    """Whether errors were measured for anything like it: one exchange per step, between processes on a processor."""
    return _on_processor(situation) and situation.facts.backwards_per_step <= 1


def _where_validated(errors: Sequence[ValidatedError], ranks: int) -> str:
    found = [it for it in errors if any(count >= ranks for count, _ in it.ratio_errors)]
    return f"{found[0].machine}, {found[0].date}" if found else ""


def _room_bytes(situation: Situation) -> int:
    """What a rank may hold (0: not known): its device, or its share of this machine's memory."""
    if not _on_processor(situation):
        return min((it.memory_bytes for it in situation.machine.accelerators), default=0)
    return situation.machine.memory_bytes // situation.facts.processes


# ---------------------------------------------------------------------------------------------
# What is decided by it
# ---------------------------------------------------------------------------------------------


def _forecast(
    setting: Setting, comparer: Comparer, errors: Sequence[ValidatedError], ranks: int, situation: Situation
) -> StrategyForecast:
    way = _WAYS[setting.lever](setting)
    found = comparer.compared(way)
    room = _room_bytes(situation)
    return StrategyForecast(
        strategy=way.strategy,
        reshards=way.reshards if way.strategy == "fsdp2" else None,
        setting=setting,
        ratio=found.ratio,
        error=ratio_error(errors, way.strategy, ranks),
        peak_bytes=found.peak_bytes,
        fits=found.peak_bytes <= room if found.peak_bytes and room else None,
    )


def _judged(forecasts: Sequence[StrategyForecast], own_bytes: int, options: Options) -> list[StrategyForecast]:
    return [msgspec.structs.replace(it, reason=reason_against(it, own_bytes, options)) for it in forecasts]


def reason_against(forecast: StrategyForecast, own_bytes: int, options: Options) -> str:
    """Why it is not tried; empty where it is."""
    if forecast.fits is False:
        return "By the estimate of its memory it does not fit."
    objective, most = options.objective, _most_slowdown(options)
    if most is not None and forecast.error is not None and forecast.ratio / (1 + forecast.error) > most:
        return (
            f"It is predicted to take {ratio(forecast.ratio)} the script's own step. The largest error of earlier "
            f"predictions was {share(forecast.error)}: even then it {_consequence(objective)}."
        )
    allowed = min((it.most for it in objective.limits if it.metric in (PEAK_BYTES, *PEAKS)), default=math.inf)
    if forecast.peak_bytes and own_bytes and forecast.peak_bytes > allowed * own_bytes:
        held = ratio(forecast.peak_bytes / own_bytes)
        return f"By the estimate of its memory it holds {held} the script's own peak, and {ratio(allowed)} is allowed."
    return ""


def _most_slowdown(options: Options) -> float | None:
    """How many times the script's own step a strategy may take to win; None where any time is as good."""
    limits = [it.most for it in options.objective.limits if it.metric == SECONDS_PER_SAMPLE]
    if options.goal.is_of_speed:
        limits.append(1 / (1 + options.delta))
    return min(limits, default=None)


def _consequence(objective: Objective) -> str:
    return "would not be faster" if objective.metric == SECONDS_PER_SAMPLE else "would be slower than is allowed"


def _in_order(forecasts: Sequence[StrategyForecast], objective: Objective) -> list[StrategyForecast]:
    """By what the goal asks for: the predicted step, or the estimated peak; those that are not tried come last."""
    of_speed = objective.metric == SECONDS_PER_SAMPLE
    ordered = sorted(forecasts, key=lambda it: (bool(it.reason), it.ratio if of_speed else it.peak_bytes, it.ratio))
    return [it if it.reason else msgspec.structs.replace(it, order=place) for place, it in enumerate(ordered, start=1)]
