"""Choose the levers to try at once, as one plan, by first measurements, which support no claim.

Levers that need a process of their own come first, since they affect the others: a slow loader hides a faster model. On
top of the promising ones, all levers that a process can switch take turns in one launch: a few in all combinations at
once, more of them first each by itself and then together. Where the budget is too short for all that and a process can
switch the lever that answers the main finding, those levers come first, and the others are left to be tried one by one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hotlap import plan as plans_of
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.findings import precedence
from hotlap.experiment.trials import Trials
from hotlap.measure.speed import error_within_launch
from hotlap.procedures.budget import shortest_look_seconds
from hotlap.procedures.combine import FEW, NEUTRAL, Combination, combine, shows_gain
from hotlap.procedures.launched import After, choose_launched
from hotlap.procedures.parts import Part, beyond_noise, plan_of
from hotlap.procedures.prospects import Prospect
from hotlap.procedures.screen import WORTH_SLOW_STARTS, Hopeful, Screened, is_out_of_sight, screen
from hotlap.procedures.screenings import can_switch, screenings_of_plans
from hotlap.procedures.verdicts import no_gain_within_launch
from hotlap.records import Finding, Move, Outcome, Plan, Run, Setting

_PAIR = 2
_SMALL_SHARE = 0.15
"""Of the time that is left, for all combinations of three levers, of which some may gain nothing."""


@dataclass(frozen=True, slots=True)
class Composition:
    """The levers to try at once, and those that may still be tried one by one; of these, ``spare`` promise a gain and
    need no proof, in case others of the plan cannot be proved."""

    parts: tuple[Part, ...]
    left: Hopeful
    spare: tuple[Part, ...] = ()


def compose(
    trials: Trials,
    draft: StudyDraft,
    prospects: Sequence[Prospect],
    after: After,
    *,
    noise: float,
    switched_first: bool = False,
    later: Sequence[Prospect] = (),
    to_come: int = 0,
) -> Composition:
    """Choose the levers that promise to make the script faster together.

    A lever that a launch shows to be useless or harmful is decided in the draft; ``noise`` is the noise of one
    replicate, as a share. ``switched_first``: levers that a process can switch are measured first, but for those that
    start slowly, and the others only if none of those is promising. ``later`` are not measured, and remain open. So
    many measurements are ``to_come`` before the proof besides, for which launches that switch leave time.
    """
    if later:
        now = [it for it in prospects if it not in later]
        of_now = partial(_only, {it.lever.name for it in now}, after)
        found = compose(trials, draft, now, of_now, noise=noise, switched_first=switched_first, to_come=to_come + 1)
        return replace(found, left={**found.left, **_waiting(later)})
    switched, launched = split(prospects)
    if switched_first and switched:
        soon = [it for it in switched if not it.lever.starts_slowly] or switched
        slow = [it for it in switched if it not in soon]
        to_come += 1 if launched else 0  # on top of what is chosen here
        added, not_added = switched_on_top(trials, draft, plans_of.EMPTY, soon, noise, to_come)
        if added:
            return Composition(tuple(added), {**not_added, **_waiting([*launched, *slow])})
        names = {it.lever.name for it in launched}
        launched_after = partial(_only, names, after)
        rest = compose(trials, draft, launched, launched_after, noise=noise)
        return Composition(rest.parts, {**rest.left, **not_added, **_waiting(slow)})
    look_seconds = shortest_look_seconds(trials, [setting for it in switched for setting in it.settings])
    trials.reserve_seconds += look_seconds  # for what a process can switch, which was not measured at all yet
    hopeful = screen(trials, draft, plans_of.EMPTY, launched, noise=noise, again=True) if launched else {}
    parts, left = choose_launched(trials, draft, launched, hopeful, after, noise)
    trials.reserve_seconds -= look_seconds
    base = plan_of(parts)
    run = parts[-1].choices[0].run if parts else None
    if run is not None:
        screened_names = {it.lever.name for it in launched}
        switched, _ = split([it for it in after(base, run) if it.lever.name not in screened_names])
    added, not_added = switched_on_top(trials, draft, base, switched, noise, to_come) if switched else ([], {})
    return Composition((*parts, *added), {**left, **not_added})


def faster_together(trials: Trials, found: Composition, prospects: Sequence[Prospect], noise: float) -> Composition:
    """The same or, where no lever promises enough by itself, those that look faster, one for each cause.

    Launches may show the gain of all where they show that of none. It must be more than the noise of a replicate.
    """
    if found.parts:
        return found
    firsts = {name: choices[0].gain or 0.0 for name, choices in found.left.items()}
    gains = {name: gain for name, gain in firsts.items() if gain >= 1 + trials.options.delta}
    chosen = one_for_each_cause({it.lever.name: it for it in prospects}, gains)
    if len(chosen) < 2 or math.prod(gains[it] for it in chosen) < beyond_noise(trials, noise):
        return found
    parts = tuple(Part(tuple(found.left[it]), found.left[it][0].comparison) for it in chosen)
    return Composition(parts, {name: it for name, it in found.left.items() if name not in chosen})


def one_for_each_cause(
    taken: Mapping[str, Prospect], gains: Mapping[str, float], besides: Sequence[str] = ()
) -> list[str]:
    """The best levers by their gains, one for each cause that they answer; none for a cause of those ``besides``."""
    causes = {name: set(it.lever.addresses) for name, it in taken.items()}
    chosen: list[str] = []
    for name in sorted(gains, key=gains.__getitem__, reverse=True):
        others = (*besides, *chosen)
        if name not in others and not any(causes[name] & causes[it] for it in others):
            chosen.append(name)
    return chosen


def _waiting(prospects: Sequence[Prospect]) -> Hopeful:
    """Levers of which nothing was measured."""
    return {it.lever.name: [Screened(setting) for setting in it.settings] for it in prospects}


def switched_promise_more(prospects: Sequence[Prospect], findings: Sequence[Finding]) -> bool:
    """Whether the levers that a process can switch come first where there is no time for all.

    So it is if they answer the costliest finding, by what was measured or by what it costs at most, or if arithmetic
    allows them more than the others. A bound that is not known promises nothing.
    """
    switched, launched = split(prospects)
    answers = any(precedence(findings, prospects[0].lever.name))
    if answers and any(it.lever is prospects[0].lever for it in switched):
        return True
    if _largest_share(switched, findings) > _largest_share(launched, findings):
        return True
    known, others = ([it.bound for it in some if it.bound is not None] for some in (switched, launched))
    return max(known, default=1.0) > max(others, default=1.0)


def _largest_share(prospects: Sequence[Prospect], findings: Sequence[Finding]) -> float:
    """The largest share of a step that these levers may save by a finding, also if only a bound of it is known."""
    return max((max(precedence(findings, it.lever.name)) for it in prospects), default=0.0)


def _only(names: Collection[str], after: After, plan: Plan, run: Run) -> Sequence[Prospect]:
    """Of the levers worth screening on top of a plan, those with these names."""
    return [it for it in after(plan, run) if it.lever.name in names]


def combined_at_once(trials: Trials, switched: Sequence[Prospect]) -> bool:
    """Whether the first launch of these levers has all their combinations: there are few, with one setting each.

    More than two first take turns by themselves where time is short, since those without any effect make the rounds
    long; but not where the script starts slowly, and one more launch takes longer than that.
    """
    if not 1 < len(switched) <= FEW or any(len(it.settings) > 1 for it in switched):
        return False
    if len(switched) == _PAIR or trials.starts_slowly:
        return True
    plans = [plans_of.EMPTY] * (2 ** len(switched) + 1)
    screening = next(screenings_of_plans(trials, plans), None)
    return screening is None or screening.seconds <= _SMALL_SHARE * trials.left_seconds


def switched_on_top(
    trials: Trials, draft: StudyDraft, base: Plan, switched: Sequence[Prospect], noise: float, to_come: int = 0
) -> tuple[list[Part], Hopeful]:
    """The best combination of levers that a process can switch, and those that one launch cannot decide. Time is left
    for so many measurements ``to_come`` after it, if possible."""
    if combined_at_once(trials, switched):
        before = trials.spent_seconds
        settings = [it.settings[0] for it in switched]
        likely = _likely(trials, draft, dict.fromkeys(settings))
        together = combine(trials, draft, base, settings, launches=1 + to_come, likely=likely)
        if together is not None:
            seconds = (trials.spent_seconds - before) / len(switched)
            return _chosen(trials, draft, together, _seen_in(together, switched, seconds))
    found = screen(trials, draft, base, switched, noise=noise, again=True, launches=1 if len(switched) == 1 else 2)
    return _combined(trials, draft, base, found, 1 + to_come)


def _seen_in(together: Combination, switched: Sequence[Prospect], seconds: float) -> Hopeful:
    """What each lever gained by itself in that launch."""
    seen: Hopeful = {}
    for it in switched:
        alone = together.alone[it.lever.name]
        choice = Screened(it.settings[0], alone.speed.speedup.value, comparison=alone, bound=it.bound, seconds=seconds)
        seen[it.lever.name] = [replace(choice, rounds=alone.speed.rounds)]
    return seen


def split(prospects: Sequence[Prospect]) -> tuple[list[Prospect], list[Prospect]]:
    """The levers that a process can switch, with those settings, and the other levers."""
    switched: list[Prospect] = []
    launched: list[Prospect] = []
    for prospect in prospects:
        settings = tuple(it for it in prospect.settings if can_switch(prospect.lever, it))
        if settings:
            switched.append(replace(prospect, settings=settings))
        else:
            launched.append(prospect)
    return switched, launched


def _combined(
    trials: Trials, draft: StudyDraft, base: Plan, found: Hopeful, launches: int
) -> tuple[list[Part], Hopeful]:
    """The best combination of these on top of ``base``; levers that one launch cannot decide remain open."""
    left = {name: it for name, it in found.items() if it[0].comparison is None}
    seen = {name: it for name, it in found.items() if name not in left}
    parts, undecided = _chosen(trials, draft, _best(trials, draft, base, seen, launches), seen)
    return parts, left | undecided


def _chosen(trials: Trials, draft: StudyDraft, chosen: Combination | None, seen: Hopeful) -> tuple[list[Part], Hopeful]:
    """The levers of a combination; of the others, those that it shows to be useless are decided in the draft."""
    if chosen is None or not chosen.is_shown:
        chosen = Combination(Move(), idle={name: it[0].comparison for name, it in seen.items() if it[0].comparison})
    parts = [Part(tuple(seen[it.lever]), chosen.parts[it.lever]) for it in chosen.move.settings]
    left: Hopeful = {}
    for name, choices in seen.items():
        comparison = chosen.idle.get(name)
        if name in chosen.parts:
            continue
        looks_faster = comparison is not None and comparison.speed.speedup.value >= 1 + NEUTRAL
        if comparison is None or looks_faster or (not parts and not is_out_of_sight(comparison, trials.options.delta)):
            left[name] = choices
            continue
        verdict = no_gain_within_launch(comparison, trials.options.goal)
        outcome = Outcome(lever=name, setting=choices[0].setting, verdict=verdict, trial_seconds=choices[0].seconds)
        draft.decide(outcome, "screening")
    return parts, left


def _best(
    trials: Trials, draft: StudyDraft, base: Plan, seen: Mapping[str, Sequence[Screened]], launches: int
) -> Combination | None:
    """The best combination; a single lever needs only its screening."""
    firsts = [it[0] for it in seen.values()]
    likely = _likely(trials, draft, {it.setting: it.gain for it in firsts})
    worth = _worth_combining(trials, firsts, likely)
    if len(worth) > 1:
        alone = {it.setting: it.comparison for it in worth if it.comparison is not None}
        settings = [it.setting for it in worth]
        together = combine(trials, draft, base, settings, alone, launches=launches, likely=likely)
        if together is not None:
            return together
    best = max(worth, key=lambda it: it.gain or 0.0, default=None)
    if best is None or best.comparison is None:
        return None
    own, lever = best.comparison, best.setting.lever
    return Combination(Move(settings=(best.setting,)), shows_gain(own, trials.options.delta), parts={lever: own})


def _likely(trials: Trials, draft: StudyDraft, gains: Mapping[Setting, float | None]) -> frozenset[Setting]:
    """Of these settings, with their first gains, those of which a finding says that they save what is worth having: the
    best one for each finding, none where that is not known."""
    found: set[Setting] = set()
    for finding in draft.study.findings:
        answering = [it for it in gains if it.lever in finding.levers]
        if finding.kind != "cost" or finding.share.value < trials.options.delta or not answering:
            continue
        if len(answering) == 1 or any(gains[it] for it in answering):
            found.add(max(answering, key=lambda it: gains[it] or 0.0))
    return frozenset(found)


def _worth_combining(trials: Trials, firsts: Sequence[Screened], likely: Collection[Setting]) -> list[Screened]:
    """The levers for another launch.

    All, if none is shown but together they promise more than noise explains. Else it is not worth it for those that
    gained nothing, promise little where the script starts slowly, or gained no more than noise explains: these make its
    rounds longer, and are left to be tried on top of what is chosen. A ``likely`` lever is worth it next to one that is
    shown as long as a gain is in sight, and if none is shown if it looks faster.
    """
    delta = trials.options.delta
    shown = [it for it in firsts if it.comparison is not None and shows_gain(it.comparison, delta)]
    if not shown and _are_beyond_error(firsts):
        return list(firsts)
    least = WORTH_SLOW_STARTS if trials.starts_slowly else 1 + delta

    def looks_worth_it(it: Screened) -> bool:
        if it in shown or it.comparison is None:
            return True
        is_faster = (it.gain or 0.0) >= least
        in_sight = not is_out_of_sight(it.comparison, least - 1) if shown else is_faster
        return (it.setting in likely and in_sight) or (is_faster and _is_beyond_error(it))

    return [it for it in firsts if looks_worth_it(it)]


def _is_beyond_error(it: Screened) -> bool:
    """Whether it gained more than the standard error of that."""
    return _are_beyond_error([it])


def _are_beyond_error(firsts: Sequence[Screened]) -> bool:
    """Whether all together gained more than the standard error of that."""
    speeds = [it.comparison.speed for it in firsts if it.comparison is not None]
    gained = math.fsum(math.log(it.speedup.value) for it in speeds)
    return gained >= math.hypot(*map(error_within_launch, speeds))
