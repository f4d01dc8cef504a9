"""Time the loader alone, with several settings: at the end of the profiled launch, which has started anyway, or else in
a launch of its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.quiet import quietly
from hotlap.experiment.trials import Trials
from hotlap.levers.data import loader as loader_lever
from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    Ceiling,
    Disturbance,
    LoaderRate,
    ScriptFacts,
    Setting,
    Situation,
    SweepLoader,
)
from hotlap.wording import number

_SECONDS_PER_SETTING = 4.0


def settings_to_sweep(trials: Trials, situation: Situation) -> tuple[Setting, ...]:
    """The settings to time the loader alone with; none if the time account shows that already, and no setting is worth
    the time.

    So it is if the training process fetches its batches itself, and waits for them for a smaller share of a step than
    the smallest gain worth having, or than that takes of the time that is left.
    """
    candidates = loader_lever.sweep_candidates(situation)
    if not candidates:
        return ()
    settings = tuple(dict.fromkeys((_own_setting(situation.facts), *candidates)))
    left = trials.left_seconds
    least_share = max(trials.options.delta, seconds_of(settings) / left if left > 0 else 0.0)
    account = situation.account
    fetches_itself = all(it.workers == 0 for it in situation.facts.training_loaders)
    return () if fetches_itself and account.seconds_in("data_wait") < least_share * account.wall else settings


def seconds_of(settings: Sequence[Setting]) -> float:
    """What timing the loader with these takes."""
    return _SECONDS_PER_SETTING * len(settings)


def by_account(situation: Situation) -> list[Ceiling]:
    """The ceiling by the time account, if the training process fetches its batches itself."""
    account = situation.account
    waiting = account.seconds_in("data_wait")
    if waiting <= 0 or any(it.workers for it in situation.facts.training_loaders):
        return []
    per_sample = waiting / max(1e-9, account.samples_per_step)
    text = f"By the time account, the script's own loader alone delivers {number(1 / per_sample)} samples per second."
    bound = max(1.0, account.wall / waiting)
    return [Ceiling(name="loader-alone", seconds_per_sample=per_sample, bound_speedup=bound, text=text)]


def in_its_own_launch(
    trials: Trials, draft: StudyDraft, settings: tuple[Setting, ...]
) -> tuple[tuple[LoaderRate, ...], Disturbance | None]:
    """The rates of the loader alone, with their disturbance; none if the budget is too small or the launch failed."""
    if not trials.fits(trials.costs.startup_seconds + seconds_of(settings)):
        draft.warn("The loader alone was not timed: the budget is too small.")
        return (), None
    draft.report("ceilings", f"The loader alone, with {len(settings)} settings")
    assignment = msgspec.structs.replace(trials.assignment(), instruments=(SweepLoader(settings=settings),))
    run, disturbed = quietly(
        trials,
        draft,
        "loader-alone",
        lambda patience: trials.launch(assignment, steps=1, patience_seconds=patience),
        lambda run: [run] if run.loader_rates else [],
        stage="ceilings",
    )
    if not run.loader_rates:
        draft.warn("The loader could not be timed alone.")
    return run.loader_rates, disturbed


def with_rates(situation: Situation, rates: tuple[LoaderRate, ...]) -> Situation:
    """The situation with the rates of the loader alone, and with that of its own setting as a ceiling."""
    ceilings = (*_ceiling(situation, rates), *situation.ceilings)
    return msgspec.structs.replace(situation, ceilings=ceilings, loader_rates=rates)


def _own_setting(facts: ScriptFacts) -> Setting:
    """The script's own loader arguments, as a setting of the loader lever."""
    loaders = facts.training_loaders
    own = next((it for it in loaders if not it.iterable), loaders[0])
    if own.workers == 0:
        return make_setting("loader", num_workers=0, pin_memory=own.pin_memory)
    return make_setting(
        "loader",
        num_workers=own.workers,
        pin_memory=own.pin_memory,
        prefetch_factor=own.prefetch_factor or 2,
        persistent_workers=own.persistent_workers,
    )


def _ceiling(situation: Situation, rates: tuple[LoaderRate, ...]) -> list[Ceiling]:
    account = situation.account
    own = next((it for it in rates if it.setting == _own_setting(situation.facts) and not it.error), None)
    if own is None or own.seconds_per_sample <= 0:
        return []
    per_sample = account.wall / max(1e-9, account.samples_per_step)
    bound = per_sample / own.seconds_per_sample
    text = f"The script's own loader alone delivers {number(1 / own.seconds_per_sample)} samples per second"
    best = min((it for it in rates if not it.error), key=lambda it: it.seconds_per_sample)
    if best.seconds_per_sample < own.seconds_per_sample:
        text += f", {number(1 / best.seconds_per_sample)} with its best setting"
    ceiling = Ceiling(name="loader-alone", seconds_per_sample=own.seconds_per_sample, text=f"{text}.")
    return [msgspec.structs.replace(ceiling, bound_speedup=max(1.0, bound))]
