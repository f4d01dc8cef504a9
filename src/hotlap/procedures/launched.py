"""Choose the levers that need a process of their own, by first measurements.

The best comes first, and the others are measured on top of it: two levers may have the same effect. One after the other
they take a start each time; where the script starts slowly, all of them take turns in one replicate, in which each arm
has one lever more than the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from hotlap import plan as plans_of
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.lever_notes import warn_of_notes
from hotlap.experiment.trials import Trials
from hotlap.procedures.parts import CLEAR, Part, beyond_noise, may_gain, plan_of
from hotlap.procedures.prospects import Prospect
from hotlap.procedures.screen import Hopeful, Screened, error_over_rounds, is_hopeful, let_go, screen, screen_one
from hotlap.procedures.screenings import affordable_screening, screenings_of_arms
from hotlap.records import Plan, Replicate, Run

After: TypeAlias = Callable[[Plan, Run], Sequence[Prospect]]
"""The levers worth screening on top of a plan, given a run of it."""


def choose_launched(
    trials: Trials, draft: StudyDraft, prospects: Sequence[Prospect], hopeful: Hopeful, after: After, noise: float
) -> tuple[list[Part], Hopeful]:
    """The levers to take together, and those that remain open, by what each gained by itself.

    Those whose first measurement is not worth another launch are not measured again, nor are those whose bound in the
    run of the best one is too small for one launch to show.
    """
    found = _nested(trials, draft, prospects, hopeful, after, noise) if trials.starts_slowly else None
    return found or _one_on_top_of_another(trials, draft, prospects, hopeful, after, noise)


# -- one after the other ----------------------------------------------------------------------


def _one_on_top_of_another(
    trials: Trials, draft: StudyDraft, prospects: Sequence[Prospect], hopeful: Hopeful, after: After, noise: float
) -> tuple[list[Part], Hopeful]:
    """Choose the best lever, then the best on top of it, until none is promising."""
    far = beyond_noise(trials, noise)
    parts: list[Part] = []
    left: Hopeful = {}
    waiting = dict(hopeful)
    while waiting:
        name, choices = max(waiting.items(), key=lambda it: it[1][0].gain or 0.0)
        if not parts and far <= (choices[0].gain or 0.0) < CLEAR:
            choices = waiting[name] = _screened_again(trials, draft, prospects, choices)
        if (choices[0].gain or 0.0) < far:
            break
        parts.append(Part(tuple(choices)))
        del waiting[name]
        worth = _worth_on_top(trials, plan_of(parts), choices[0], waiting, after, far)
        best = {name: (waiting[name][0].setting,) for name in worth}
        others = [replace(it, settings=best[it.lever.name]) for it in prospects if it.lever.name in best]
        rest = {name: it for name, it in waiting.items() if name not in best}
        waiting = screen(trials, draft, plan_of(parts), others, noise=noise, again=True) if others else {}
        left |= rest
    return parts, {**left, **waiting}


def _worth_on_top(
    trials: Trials, plan: Plan, newest: Screened, waiting: Hopeful, after: After, far: float
) -> Sequence[str]:
    """Of the levers that wait, those worth another launch on top of a plan with its newest lever, best first."""
    possible = set(waiting)
    if waiting and newest.run is not None:
        possible = {it.lever.name for it in after(plan, newest.run) if it.bound is None or it.bound >= far}
    freed, delta = newest.gain or 1.0, trials.options.delta
    return [name for name, it in waiting.items() if name in possible and may_gain(it[0], freed, delta)]


def _screened_again(
    trials: Trials, draft: StudyDraft, prospects: Sequence[Prospect], choices: list[Screened]
) -> list[Screened]:
    """The same with the mean of two screenings of the best setting: a useless lever costs a whole verification."""
    first = choices[0]
    lever = next(it.lever for it in prospects if it.lever.name == first.setting.lever)
    second = screen_one(trials, draft, plans_of.EMPTY, lever, first.setting)
    if isinstance(second, Failure) or second.gain is None or first.gain is None:
        return choices
    return [replace(first, gain=math.sqrt(first.gain * second.gain)), *choices[1:]]


# -- all in one replicate ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Nest:
    """Arms that each have one lever more than the one before."""

    arms: tuple[Plan, ...]
    names: tuple[str, ...]
    """The levers that have an arm with them and one without them, in order."""


def _nest(trials: Trials, hopeful: Hopeful, best: str, worth: Sequence[str]) -> _Nest:
    """The best lever and those worth having on top of it, as many as run at the same time.

    One that is clear by itself is in every arm: it needs no second measurement.
    """
    is_clear = (hopeful[best][0].gain or 0.0) >= CLEAR
    plan = Plan(settings=(hopeful[best][0].setting,)) if is_clear else plans_of.EMPTY
    arms, names = [plan], worth if is_clear else [best, *worth]
    for name in names[: max(1, trials.arms_at_once - 1)]:
        arms.append(plans_of.with_setting(arms[-1], hopeful[name][0].setting))
    return _Nest(tuple(arms), tuple(names[: len(arms) - 1]))


def _nested(
    trials: Trials, draft: StudyDraft, prospects: Sequence[Prospect], hopeful: Hopeful, after: After, noise: float
) -> tuple[list[Part], Hopeful] | None:
    """Choose the levers by one replicate, which is taken again without a setting that fails; None if there is no time
    for it, or it failed otherwise."""
    far = beyond_noise(trials, noise)
    best = max(hopeful, key=lambda name: hopeful[name][0].gain or 0.0, default="")
    if not best or (hopeful[best][0].gain or 0.0) < far:
        return None
    first = hopeful[best][0]
    others = {name: it for name, it in hopeful.items() if name != best}
    worth = _worth_on_top(trials, Plan(settings=(first.setting,)), first, others, after, far)
    nest = _nest(trials, hopeful, best, worth)
    if not nest.names:
        return [Part(tuple(hopeful[best]))], others
    before = trials.spent_seconds
    turns = _take(trials, draft, nest)
    if isinstance(turns, Failure) and turns.arm and not turns.cut:
        failed, *others_of_it = hopeful[nest.names[turns.arm - 1]]
        sound = {name: it for name, it in hopeful.items() if name != failed.setting.lever}
        if others_of_it:
            sound[failed.setting.lever] = others_of_it
        else:
            _let_go(trials, draft, prospects, failed, noise, failure=turns)
        return choose_launched(trials, draft, prospects, sound, after, noise)
    if turns is None or isinstance(turns, Failure):
        return None
    seconds = (trials.spent_seconds - before) / len(nest.names)
    parts = [Part(tuple(hopeful[best]))] if best not in nest.names else []
    left = {name: it for name, it in others.items() if name not in nest.names}
    for arm, name in enumerate(nest.names, start=1):
        alone, *rest = hopeful[name]
        on_top = _on_top(trials, turns, arm, alone, seconds)
        warn_of_notes(draft, alone.setting, turns.runs[arm])
        draft.note_first_gain(name, nest.arms[arm - 1], on_top.gain or 0.0)
        seen = on_top if parts else _mean(alone, on_top)
        if (seen.gain or 0.0) >= far:
            parts.append(Part((seen, *rest)))
        elif is_hopeful(seen, trials.options.delta, noise):
            left[name] = [seen, *rest]
        else:
            _let_go(trials, draft, prospects, seen, noise)
    return parts, left


def _let_go(
    trials: Trials,
    draft: StudyDraft,
    prospects: Sequence[Prospect],
    seen: Screened,
    noise: float,
    failure: Failure | None = None,
) -> None:
    """Decide a lever that gained too little there, or whose launch failed."""
    prospect = next(it for it in prospects if it.lever.name == seen.setting.lever)
    failures = {} if failure is None else {seen.setting: failure}
    let_go(draft, prospect, [] if failures else [seen], failures, trials.options.delta, noise)


def _take(trials: Trials, draft: StudyDraft, nest: _Nest) -> Replicate | Failure | None:
    """One replicate of all arms, as long as there is time for; None if there is none."""
    screening = affordable_screening(trials, screenings_of_arms(trials, nest.arms))
    if screening is None:
        return None
    how = ", one on top of another" if len(nest.names) > 1 else ""
    draft.report("screening", f"A first measurement of {', '.join(nest.names)}{how}", replicates_planned=1)
    purpose = f"nested {' '.join(map(plans_of.key, nest.arms))}"
    turns = trials.take_replicate(nest.arms, rounds=screening.rounds, purpose=purpose, shape=screening.shape)
    return turns.begun if isinstance(turns, Failure) and turns.begun is not None else turns


def _on_top(trials: Trials, turns: Replicate, arm: int, alone: Screened, seconds: float) -> Screened:
    """What a lever gained next to the arm without it."""
    goal = trials.options.goal
    without, with_it = (goal.seen(turns, it) for it in (arm - 1, arm))
    return replace(
        alone,
        gain=with_it / without if with_it and without else None,
        seconds=alone.seconds + seconds,
        rounds=len(turns.rounds[arm]),
        run=turns.runs[arm],
        disturbed=trials.disturbance("speed", turns.runs) is not None,
        error=error_over_rounds(turns, arm, arm - 1),
    )


def _mean(alone: Screened, on_top: Screened) -> Screened:
    """The mean of two measurements of a lever next to the unmodified script."""
    if alone.gain is None or on_top.gain is None:
        return on_top
    return replace(on_top, gain=math.sqrt(alone.gain * on_top.gain))
