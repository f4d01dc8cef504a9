"""Measure once what the levers gain that arithmetic allows (:mod:`hotlap.procedures.prospects`).

One interleaved replicate of the current plan and of that plan with each candidate setting chooses settings by their
point estimate, and drops those that are clearly slower, or clearly beyond a limit of the objective. It supports no
claim: a single launch is weak evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TypeAlias

from hotlap import plan as plans_of
from hotlap.experiment.comparing import comparison_within_launch
from hotlap.experiment.confirm import OUT_OF_SIGHT_CONFIDENCE
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.first_ratios import note_first_ratio
from hotlap.experiment.goal import LimitUse
from hotlap.experiment.lever_notes import warn_of_notes
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever
from hotlap.measure.speed import upper_end_within_launch
from hotlap.objective import NOTHING_USED
from hotlap.procedures.prospects import USUAL_LAUNCH_NOISE, Prospect
from hotlap.procedures.screenings import (
    Screening,
    affordable_screening,
    can_switch,
    screenings,
    screenings_in_one_launch,
)
from hotlap.records import (
    SECONDS_PER_SAMPLE,
    Comparison,
    CompileReport,
    Failed,
    NoGain,
    Outcome,
    Plan,
    Replicate,
    Run,
    Setting,
)
from hotlap.wording import metric_words, ratio, ratio_over_rounds, share

_NOISE_OF_A_BUSY_MACHINE = 0.5
"""The noise of a single replicate that other processes disturbed: what it shows of a limit is then no reason to drop a
lever without a trial."""

WORTH_SLOW_STARTS = 1.05
"""What a lever must promise to be worth many launches of a script that starts slowly."""

_LEAST_NOISE, MOST_NOISE = 0.015, 0.06
"""Between which the noise of one replicate is assumed to lie, as a share."""

_ENOUGH_FOR_NOISE = 3


@dataclass(frozen=True, slots=True)
class Screened:
    """A setting, and its gain in one replicate (None if it was not screened).

    It has a ``comparison`` if it took turns within a single launch, and a ``run`` if it had a launch of its own.
    ``bound`` is the largest gain that arithmetic allowed when it was measured; None where it knew none. ``uses`` is
    what it used of what the objective limits, and ``doubt`` a sentence on its results, if these were compared.
    ``disturbed``: other processes kept cores busy meanwhile. ``error`` is the standard error of the gain's logarithm
    over the rounds of a launch of its own.
    """

    setting: Setting
    gain: float | None = None
    compile: CompileReport | None = None
    seconds: float = 0.0
    rounds: int = 0
    comparison: Comparison | None = None
    run: Run | None = None
    bound: float | None = None
    uses: tuple[LimitUse, ...] = ()
    doubt: str = ""
    disturbed: bool = False
    error: float = 0.0


Hopeful: TypeAlias = dict[str, list[Screened]]
"""The settings of each lever that are worth a trial, best first."""


@dataclass(frozen=True, slots=True)
class _Manner:
    """A launch that switches is as short as leaves time for so many ``launches`` like it, if one is; ``fewer_first``:
    settings with launches of their own are measured fewer at once before they are measured shorter."""

    launches: int = 1
    fewer_first: bool = False


_USUAL = _Manner()


def noise_of_a_replicate(differences: Sequence[float]) -> float:
    """The noise of one replicate, as a share.

    Twice the differences between the baseline and its repeat in this study (as logarithms), once there are some.
    """
    if len(differences) < _ENOUGH_FOR_NOISE:
        return USUAL_LAUNCH_NOISE
    spread = math.sqrt(fmean(it * it for it in differences))
    return max(_LEAST_NOISE, min(MOST_NOISE, 2 * spread))


def screen(
    trials: Trials,
    draft: StudyDraft,
    incumbent: Plan,
    prospects: Sequence[Prospect],
    *,
    noise: float,
    again: bool = False,
    used: Mapping[str, float] = NOTHING_USED,
    in_breadth: bool = False,
    launches: int = 1,
) -> dict[str, list[Screened]]:
    """The promising settings of each prospect, best first, in order of the prospects' best settings.

    ``noise`` is the noise of one replicate, as a share, and ``used`` the current plan's use of what is limited. A lever
    without a promising setting is decided in the draft: as failed if all its settings failed, else as without gain,
    with the measured figure. A single setting needs no choice and is kept without measuring, unless it was tried before
    (``again``), or the objective has limits: a replicate that shows one exceeded saves a whole trial. ``in_breadth``
    measures the most promising setting of each prospect first, and few at once: engines take long to build. Where the
    script starts slowly, the other settings of a prospect are measured only if that one gains more than noise explains,
    fails, or could not be measured. A process that switches is as short as leaves time for so many ``launches`` like
    it, itself included, if possible.
    """
    goal, quick = trials.options.goal, trials.options.quick
    wanted = [setting for it in prospects for setting in (it.settings[:1] if quick else it.settings)]
    if in_breadth:
        wanted.sort(key=_place_among(prospects))
    if len(wanted) < 2 and not again and not quick and not goal.objective.limits:
        return {it.lever.name: [Screened(setting) for setting in it.settings] for it in prospects}
    switchable = {setting for it in prospects for setting in it.settings if can_switch(it.lever, setting)}
    firsts = {it.settings[0] for it in prospects}
    at_first = [it for it in wanted if it in switchable or it in firsts or not trials.starts_slowly]
    manner = _Manner(launches, fewer_first=in_breadth)
    seen, failures = _measure(trials, draft, incumbent, at_first, switchable, manner)
    promising = {one for it in prospects if _may_gain(seen.get(it.settings[0]), goal.delta) for one in it.settings}
    rest = [it for it in wanted if it in promising and it not in at_first]
    more, failed = _measure(trials, draft, incumbent, rest, switchable, _Manner(fewer_first=in_breadth))
    seen, failures = seen | more, failures | failed
    hopeful: dict[str, list[Screened]] = {}
    for prospect in prospects:
        mine = [replace(seen[it], bound=prospect.bound) for it in prospect.settings if it in seen]
        gains = [it.gain for it in mine if it.gain is not None]
        if gains:
            draft.note_first_gain(prospect.lever.name, incumbent, max(gains))
        within = [it for it in mine if exceeded(it, noise, used) is None]
        worth = [it for it in within if is_hopeful(it, goal.delta, noise)]
        if worth:
            hopeful[prospect.lever.name] = sorted(worth, key=lambda it: -(it.gain or 1.0))
        elif within or not mine:
            let_go(draft, prospect, within, failures, goal.delta, noise)
        else:
            let_go_beyond_limit(draft, max(mine, key=lambda it: it.gain or 0.0), noise, used)
    return by_gain(hopeful)


def by_gain(hopeful: Hopeful, prospects: Sequence[Prospect] = ()) -> Hopeful:
    """The same, in order of the gains of their best settings; where these are the same or unknown, in that of the
    prospects."""
    places = {it.lever.name: place for place, it in enumerate(prospects)}

    def order(name: str) -> tuple[float, int]:
        return -(hopeful[name][0].gain or 1.0), places.get(name, len(places))

    return {name: hopeful[name] for name in sorted(hopeful, key=order)}


def _place_among(prospects: Sequence[Prospect]) -> Callable[[Setting], int]:
    places = {setting: place for it in prospects for place, setting in enumerate(it.settings)}
    return places.__getitem__


def _may_gain(first: Screened | None, delta: float) -> bool:
    """Whether other settings of a lever are worth a launch, by what is known of its first one (None: it failed)."""
    return first is None or first.gain is None or first.gain >= (1 + delta) * (1 + USUAL_LAUNCH_NOISE)


def screen_one(
    trials: Trials, draft: StudyDraft, incumbent: Plan, lever: Lever, setting: Setting
) -> Screened | Failure:
    """Screen one setting alone; without a figure if the time does not allow even the shortest screening."""
    switchable = {setting} if can_switch(lever, setting) else set()
    seen, failures = _measure(trials, draft, incumbent, [setting], switchable)
    return failures[setting] if setting in failures else seen[setting]


def exceeded(it: Screened, noise: float, used: Mapping[str, float]) -> LimitUse | None:
    """The first limit that a first measurement shows to be exceeded, by more than its uncertainty; None if none is.

    A launch may differ by the usual noise even where this study has seen less, and by far more on a busy machine.
    """
    return next((one for one in it.uses if one.exceeds(_noise_of(it, noise), used)), None)


def _noise_of(it: Screened, noise: float) -> float:
    return max(noise, _NOISE_OF_A_BUSY_MACHINE if it.disturbed else USUAL_LAUNCH_NOISE)


def let_go_beyond_limit(draft: StudyDraft, it: Screened, noise: float, used: Mapping[str, float]) -> None:
    """Decide a lever whose setting is beyond a limit; do nothing if it is not."""
    use = exceeded(it, noise, used)
    if use is None or has_trial(draft, it.setting.lever):
        return
    allowed = f"{use.limit.most:g}x of the script's is allowed"
    if use.left(used) != use.limit.most:
        allowed += f", of which the levers before it leave {use.left(used):.3f}x"
    text = (
        f"A first measurement (one replicate) showed {ratio(use.ratio)} the {metric_words(use.limit.metric)}: "
        f"{allowed}. Run-to-run noise of {share(_noise_of(it, noise))} does not explain that."
    )
    verdict = NoGain(metric=draft.study.objective.metric, reason=text)
    report = it.compile if it.compile and it.compile.seconds else None
    outcome = Outcome(
        lever=it.setting.lever, setting=it.setting, verdict=verdict, compile=report, trial_seconds=it.seconds
    )
    draft.decide(outcome, "screening")


def _measure(
    trials: Trials,
    draft: StudyDraft,
    incumbent: Plan,
    wanted: Sequence[Setting],
    switchable: Collection[Setting],
    manner: _Manner = _USUAL,
) -> tuple[dict[Setting, Screened], dict[Setting, Failure]]:
    """Screen settings: one launch for all that a process can switch, and a replicate for as many others as run at the
    same time.

    What fails is removed and the rest measured again. What the budget does not allow remains unscreened.
    """
    seen: dict[Setting, Screened] = {}
    failures: dict[Setting, Failure] = {}
    waiting = list(wanted)
    while waiting:
        screening, group = _next_screening(trials, incumbent, waiting, switchable, manner)
        if screening is None:
            seen.update((it, Screened(it)) for it in waiting)
            break
        before = trials.spent_seconds
        turns = _take(trials, draft, incumbent, screening, group)
        if isinstance(turns, Failure) and turns.arm >= screening.references:
            failed = group[turns.arm - screening.references]
            failures[failed] = turns
            waiting.remove(failed)
            continue
        if isinstance(turns, Failure) and screening.one_launch and not turns.cut:
            switchable = ()  # it may train if nothing is switched
            continue
        waiting = [it for it in waiting if it not in group]
        if isinstance(turns, Failure):
            seen.update((it, Screened(it)) for it in group)
            continue
        share = (trials.spent_seconds - before) / len(group)
        for arm, setting in enumerate(group, start=screening.references):
            seen[setting] = _screened(trials, incumbent, setting, screening, turns, arm, share)
            note_first_ratio(draft, incumbent, setting, turns, arm)
            if not screening.one_launch:
                warn_of_notes(draft, setting, turns.runs[arm])
    return seen, failures


def _screened(
    trials: Trials, incumbent: Plan, setting: Setting, screening: Screening, turns: Replicate, arm: int, seconds: float
) -> Screened:
    """The result of one arm of a replicate."""
    comparison, gain = None, trials.options.goal.seen(turns, arm)
    if screening.one_launch and len(turns.rounds[arm]) > 1:
        candidate, delta = plans_of.with_setting(incumbent, setting), trials.options.delta
        comparison = comparison_within_launch(incumbent, candidate, turns, delta=delta, arms=([0], [arm]))
        gain = comparison.speed.speedup.value
    return Screened(
        setting,
        gain=gain,
        compile=turns.runs[arm].compile,
        seconds=seconds,
        rounds=len(turns.rounds[arm]),
        comparison=comparison,
        run=None if screening.one_launch else turns.runs[arm],
        uses=trials.options.goal.uses(turns, arm, has_own_launch=not screening.one_launch),
        disturbed=trials.disturbance("speed", turns.runs) is not None,
        error=0.0 if screening.one_launch or not trials.options.goal.is_of_speed else error_over_rounds(turns, arm),
    )


def error_over_rounds(turns: Replicate, arm: int, reference: int = 0) -> float:
    """The standard error of what the rounds of an arm differ by from those of another, as a logarithm."""
    logs = [math.log(own / first) for first, own in zip(turns.rounds[reference], turns.rounds[arm], strict=True)]
    return stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0


def _next_screening(
    trials: Trials, incumbent: Plan, waiting: Sequence[Setting], switchable: Collection[Setting], manner: _Manner
) -> tuple[Screening | None, Sequence[Setting]]:
    """The next screening, and its settings. A process that switches cannot measure memory: its peak is that of all."""
    together = [it for it in waiting if it in switchable]
    if together and trials.options.goal.is_of_speed:
        for count in range(len(together), 0, -1):  # as many as the time allows, the most promising ones
            possible = tuple(screenings_in_one_launch(trials, incumbent, together[:count]))
            screening = affordable_screening(trials, possible, manner.launches)
            screening = screening or _shortest(trials, possible, together[:count])
            if screening is not None:
                return screening, together[:count]
    of_launches = screenings(trials, incumbent, waiting, fewer_first=manner.fewer_first)
    screening = affordable_screening(trials, of_launches)
    return screening, waiting[: screening.settings] if screening is not None else ()


def _shortest(trials: Trials, possible: Sequence[Screening], group: Sequence[Setting]) -> Screening | None:
    """The shortest of these, if it fits by its expected time and none of its settings starts slowly. Fewer settings
    could be measured for longer, but the best one might be left out."""
    if not possible or any(it.lever in trials.slow_levers for it in group):
        return None
    return possible[-1] if trials.fits(possible[-1].seconds) else None


def _take(
    trials: Trials, draft: StudyDraft, incumbent: Plan, screening: Screening, group: Sequence[Setting]
) -> Replicate | Failure:
    arms = [incumbent] * screening.references + [plans_of.with_setting(incumbent, it) for it in group]
    names = ", ".join(plans_of.describe(it) for it in group)
    draft.report("screening", f"A first measurement of {names}", replicates_planned=1)
    turns = trials.take_replicate(
        arms,
        rounds=screening.rounds,
        purpose=f"screening {plans_of.key(incumbent)} {names}",
        shape=screening.shape,
        one_launch=screening.one_launch,
    )
    return turns.begun if isinstance(turns, Failure) and turns.begun is not None else turns


def is_hopeful(it: Screened, delta: float, noise: float) -> bool:
    """Whether a setting is worth a trial: it was not screened, or may gain something within the noise of that, which is
    larger than usual where rounds differ by more."""
    if it.gain is None or it.gain * (1 + _noise_of_gain(it, noise)) >= 1 + delta:
        return True
    return it.comparison is not None and not is_out_of_sight(it.comparison, delta)


def _noise_of_gain(it: Screened, noise: float) -> float:
    """The noise of one replicate, or of this one, if its rounds differ by more: two standard errors."""
    return max(noise, 2 * it.error)


def is_out_of_sight(comparison: Comparison, delta: float) -> bool:
    """Whether a launch shows that a gain worth having is too unlikely for a trial: the rule by which trials end for
    futility."""
    return upper_end_within_launch(comparison.speed, OUT_OF_SIGHT_CONFIDENCE) < 1 + delta


def has_trial(draft: StudyDraft, name: str) -> bool:
    """Whether a trial decided the lever, which is stronger evidence than a screening."""
    earlier = draft.outcome_of(name)
    return earlier is not None and isinstance(earlier.verdict, NoGain) and earlier.verdict.comparison is not None


def let_go(
    draft: StudyDraft,
    prospect: Prospect,
    seen: Sequence[Screened],
    failures: Mapping[Setting, Failure],
    delta: float,
    noise: float,
) -> None:
    name = prospect.lever.name
    if has_trial(draft, name):
        return
    if seen:
        best = max(seen, key=lambda it: it.gain or 0.0)
        if best.comparison is not None:
            shown = ratio_over_rounds(best.comparison.speed.speedup)
            text = f"A first measurement within one launch showed {shown}, which is too little for a trial."
        else:
            gain, of_speed = best.gain or 0.0, draft.study.objective.metric == SECONDS_PER_SAMPLE
            shown = ratio(gain) if of_speed or not gain else f"{ratio(1 / gain)} the amount without it"
            seen_noise = _noise_of_gain(best, noise)
            despite = f", even with run-to-run noise of {share(seen_noise)}" if seen_noise else ""
            doubt = f"a gain of {share(delta)} is unlikely{despite}."
            text = f"A first measurement (one replicate, no interval) showed {shown}: {doubt}"
        report = best.compile if best.compile and best.compile.seconds else None
        no_gain = NoGain(metric=draft.study.objective.metric, reason=text)
        outcome = Outcome(lever=name, setting=best.setting, verdict=no_gain, compile=report, trial_seconds=best.seconds)
        draft.decide(outcome, "screening")
        return
    setting = next(it for it in prospect.settings if it in failures)
    failure = failures[setting]
    verdict = Failed(ending=failure.ending, reason=failure.reason)
    draft.decide(Outcome(lever=name, setting=setting, verdict=verdict), "screening")
