"""Choose, within a launch, the best combination of levers that a process can switch while it trains.

A few levers are tried in all their combinations (a full factorial design). With more levers, the combination of all
takes turns with those that lack one lever each; a lever that adds nothing there, nor by the mean of that and its gain
alone in an earlier launch, is dropped, until each gains or few are left. If what is dropped changed nothing next to the
others, and each of these clearly gains, they are not measured again.
Both designs show that two levers have the same effect, or that one needs the other. Of all combinations, the mean over
the pairs with and without a lever (its main effect: Box, Hunter and Hunter, *Statistics for Experimenters*, 2005) has
less noise than one pair, and counts where the best combination does not contradict it. The choice is not a claim: it is
proved on fresh launches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, compress
from statistics import fmean
from types import MappingProxyType

from hotlap import plan as plans_of
from hotlap.experiment.comparing import comparison_within_launch
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.trials import Trials
from hotlap.measure import trimmed
from hotlap.measure.speed import mean_within_launches
from hotlap.procedures.screenings import affordable_screening, screenings_of_plans
from hotlap.records import Comparison, Estimate, Move, Plan, Replicate, Setting, SpeedComparison

FEW = 3
"""The most levers that are tried in all combinations: eight."""

MOST = 6
"""The most levers of a combination: more make rounds long, and the seventh lever by itself gains little."""

_MOST_LAUNCHES = 4

NOTHING_KNOWN: Mapping[Setting, Comparison] = MappingProxyType({})

ONE_STANDARD_ERROR = 0.683
"""The confidence of an interval of one standard error on each side. It is enough for a lever that answers a finding,
which is evidence besides the launches."""

NEUTRAL = 0.03
"""A lever that changes the time by a smaller share, next to the others, does not change what they gain. One that gains
no more may do so by chance, and is measured again."""


@dataclass(frozen=True, slots=True)
class Combination:
    """The best move and, for each of its levers, the move compared with itself without that lever.

    ``is_shown``: the launch shows a gain worth having of the move, perhaps next to dropped levers that changed nothing.
    ``idle`` are the dropped levers, each with the comparison that decided. ``alone`` compares each lever by itself, if
    all combinations were tried.
    """

    move: Move
    is_shown: bool = False
    parts: Mapping[str, Comparison] = field(default_factory=dict)
    idle: Mapping[str, Comparison] = field(default_factory=dict)
    alone: Mapping[str, Comparison] = field(default_factory=dict)


def combine(
    trials: Trials,
    draft: StudyDraft,
    base: Plan,
    settings: Sequence[Setting],
    alone: Mapping[Setting, Comparison] = NOTHING_KNOWN,
    *,
    launches: int = 1,
    likely: frozenset[Setting] = frozenset(),
) -> Combination | None:
    """The best combination of these settings (most promising first) on top of ``base``.

    ``alone`` compares them by themselves, within an earlier launch; for those that are ``likely``, since a finding says
    what they save, a gain of one standard error is enough. Blocks are as short as leaves time for so many
    ``launches`` like this one, itself included, if possible; rounds are not made fewer for that. None if there is no
    time for it, or the script does not support it.
    """
    group = Move(settings=tuple(settings[:MOST]))
    idle: dict[str, Comparison] = {}
    earlier = {it: [own] for it, own in alone.items()}
    for _ in range(_MOST_LAUNCHES):
        if not group.settings:
            return Combination(group, idle=idle)
        is_small = len(group.settings) <= FEW
        moves = _all_combinations(group) if is_small else _all_but_one(group)
        taken = _take(trials, draft, base, moves, launches, likely)
        if taken is None:
            return None
        if is_small:
            return taken.best_of_all(group, idle, earlier)
        effects = {it: taken.effect(it, group) for it in group.settings}
        useless = [it for it in group.settings if not taken.pays_next_to_others(it, effects[it], alone.get(it))]
        if not useless:
            return taken.combination(group, idle)
        dropped = _to_drop(useless, effects, {it for it, own in alone.items() if own.speed.speedup.low > 1})
        idle.update({it.lever: effects[it] for it in dropped})
        for it, effect in effects.items():
            earlier.setdefault(it, []).append(effect)
        rest = Move(settings=tuple(it for it in group.settings if it not in dropped))
        are_clear = all(effects[it].speed.speedup.value >= 1 + NEUTRAL for it in rest.settings)
        if rest.settings and are_clear and all(_is_neutral(effects[it]) for it in dropped):
            return taken.combination_within(group, rest, idle)
        group = rest
    return None


def shows_gain(comparison: Comparison, delta: float) -> bool:
    """Whether a launch shows a gain worth having: its whole interval is faster. That is enough for a trial on fresh
    launches, which alone support a claim."""
    return comparison.speed.speedup.low > 1 and comparison.speed.speedup.value >= 1 + delta


def _all_combinations(group: Move) -> list[Move]:
    return [
        Move(settings=it) for size in range(1, len(group.settings) + 1) for it in combinations(group.settings, size)
    ]


def _all_but_one(group: Move) -> list[Move]:
    return [group, *(_without(group, it) for it in group.settings)]


def _is_neutral(effect: Comparison) -> bool:
    return abs(math.log(effect.speed.speedup.value)) < math.log(1 + NEUTRAL)


def _to_drop(
    useless: Sequence[Setting], effects: Mapping[Setting, Comparison], gained_alone: Collection[Setting]
) -> list[Setting]:
    """All levers that are harmful or gain neither alone nor next to the others; else only the least useful one.

    Two that gain alone may be useless only because of each other.
    """
    clear = [it for it in useless if effects[it].speed.speedup.high < 1 or it not in gained_alone]
    return clear or [min(useless, key=lambda it: effects[it].speed.speedup.value)]


def _without(move: Move, setting: Setting) -> Move:
    return Move(settings=tuple(it for it in move.settings if it != setting))


def _take(
    trials: Trials, draft: StudyDraft, base: Plan, moves: Sequence[Move], launches: int, likely: frozenset[Setting]
) -> _Taken | None:
    """One launch in which these moves and two copies of no move take turns."""
    plans = [base, base, *(plans_of.with_move(base, it) for it in moves)]
    possible = list(screenings_of_plans(trials, plans))
    all_rounds = [it for it in possible if it.rounds == possible[0].rounds]
    screening = affordable_screening(trials, all_rounds, launches) or affordable_screening(trials, possible)
    if screening is None:
        return None
    names = ", ".join(it.lever for it in max(moves, key=lambda it: len(it.settings)).settings)
    draft.report("screening", f"Which of these go together: {names}", replicates_planned=1)
    turns = trials.take_replicate(
        plans,
        rounds=screening.rounds,
        purpose=f"combining {plans_of.key(base)} {names}",
        shape=screening.shape,
        one_launch=True,
    )
    if isinstance(turns, Failure) or len(turns.rounds[0]) < 2:
        return None
    return _Taken(base, tuple(moves), turns, trials.options.delta, likely)


@dataclass(frozen=True, slots=True)
class _Taken:
    """The rounds of a launch whose arms 0 and 1 are ``base``, and then that with each of the moves."""

    base: Plan
    moves: tuple[Move, ...]
    turns: Replicate
    delta: float
    likely: frozenset[Setting]

    def best_of_all(
        self, group: Move, idle: Mapping[str, Comparison], earlier: Mapping[Setting, Sequence[Comparison]]
    ) -> Combination:
        """The fastest combination, without the levers that add nothing, here and by what ``earlier`` launches showed.

        Some levers may together be shown to gain where none of them is. Those then stay that look faster: the launch
        shows that there is a gain, not whose it is.
        """
        fastest = best = min((Move(), *self.moves), key=self._level)
        while useless := [it for it in best.settings if not self._is_worth_it(it, best, earlier.get(it, ()))]:
            worst = min(useless, key=lambda it: self.effect(it, best).speed.speedup.value)
            best = _without(best, worst)
        if best != fastest and self.pays(self._compare(best, fastest)):
            stays = [it in best.settings or self._looks_faster(it, fastest) for it in fastest.settings]
            best = Move(settings=tuple(compress(fastest.settings, stays)))
        others = [it for it in group.settings if it not in best.settings]
        found = self.combination(best, {**idle, **{it.lever: self._added(it, best, group) for it in others}})
        alone = {it.lever: self._compare(Move(), Move(settings=(it,))) for it in group.settings}
        return replace(found, is_shown=bool(best.settings), alone=alone)

    def combination(self, move: Move, idle: Mapping[str, Comparison]) -> Combination:
        return self.combination_within(move, move, idle)

    def combination_within(self, group: Move, move: Move, idle: Mapping[str, Comparison]) -> Combination:
        """The move, whose levers were measured next to all of the group."""
        parts = {it.lever: self.effect(it, group) for it in move.settings}
        is_shown = bool(move.settings) and self.pays(self._compare(Move(), group))
        return Combination(move, is_shown, parts, idle)

    def effect(self, setting: Setting, move: Move) -> Comparison:
        """Compare the move with itself without that setting."""
        return self._compare(_without(move, setting), move)

    def _is_worth_it(self, setting: Setting, best: Move, earlier: Sequence[Comparison]) -> bool:
        """Whether a setting pays in the best combination, over all pairs of combinations with and without it, or by the
        mean of that and of its gains in earlier launches.

        A small gain in the best one must also be the mean over all pairs. A mean alone is enough only where the
        interval in the best one reaches it: next to a lever with the same effect, a setting gains less than elsewhere.
        """
        here, everywhere = self.effect(setting, best), self._main_effect(setting)
        if self.pays(here) and here.speed.speedup.value >= 1 + NEUTRAL:
            return True
        if self.pays(here):
            return everywhere.speedup.value >= 1 + self.delta
        known = [everywhere], [everywhere, *(it.speed for it in earlier)]
        return any(self._is_supported(here, self._mean(setting, it)) for it in known)

    def pays_next_to_others(self, setting: Setting, effect: Comparison, alone: Comparison | None) -> bool:
        """Whether a setting pays next to others, or by the mean of that and of its gain alone in an earlier launch."""
        if self.pays(effect):
            return True
        known = [effect.speed] if alone is None else [effect.speed, alone.speed]
        return self._is_supported(effect, self._mean(setting, known))

    def _mean(self, setting: Setting, speeds: Sequence[SpeedComparison]) -> Estimate:
        return mean_within_launches(speeds, ONE_STANDARD_ERROR if setting in self.likely else None)

    def _is_supported(self, here: Comparison, mean: Estimate) -> bool:
        """Whether the mean of several comparisons shows a gain, and the one that counts does not contradict it."""
        own = here.speed.speedup
        return mean.low > 1 and own.high >= mean.value and min(own.value, mean.value) >= 1 + self.delta

    def _looks_faster(self, setting: Setting, best: Move) -> bool:
        """Whether it gains what is worth having in the best combination and over all pairs, by the estimates alone."""
        both = (self.effect(setting, best).speed.speedup, self._main_effect(setting).speedup)
        return all(it.value >= 1 + self.delta for it in both)

    def _main_effect(self, setting: Setting) -> SpeedComparison:
        """How much faster the mean of all combinations with a setting is than that of those without, round by round."""
        with_it = [it for it in self.moves if setting in it.settings]
        arms = [self._arm(_without(it, setting)) for it in with_it], [self._arm(it) for it in with_it]
        plan = plans_of.with_setting(self.base, setting)
        return comparison_within_launch(self.base, plan, self.turns, delta=self.delta, arms=arms).speed

    def pays(self, comparison: Comparison) -> bool:
        """Whether the launch shows a gain worth having."""
        return shows_gain(comparison, self.delta)

    def _added(self, setting: Setting, move: Move, group: Move) -> Comparison:
        wanted = {*move.settings, setting}
        return self._compare(move, Move(settings=tuple(it for it in group.settings if it in wanted)))

    def _compare(self, reference: Move, candidate: Move) -> Comparison:
        return comparison_within_launch(
            plans_of.with_move(self.base, reference),
            plans_of.with_move(self.base, candidate),
            self.turns,
            delta=self.delta,
            arms=([self._arm(reference)], [self._arm(candidate)]),
        )

    def _arm(self, move: Move) -> int:
        return self.moves.index(move) + 2 if move.settings else 0

    def _level(self, move: Move) -> float:
        """The logarithm of its time relative to that of all arms, round by round."""
        rounds = [[math.log(it) for it in turns] for turns in zip(*self.turns.rounds, strict=True)]
        return trimmed.mean([own[self._arm(move)] - fmean(own) for own in rounds]).value
