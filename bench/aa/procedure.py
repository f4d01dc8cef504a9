"""The procedure under test, as the search uses it: looks with early stopping, a family, and the final headline."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.aa.noise import Arm, Scenario, draw_arms
from hotlap.measure import speed
from hotlap.records import SpeedComparison

ROUNDS = 15
LAST_LOOK = speed.LOOKS[-1].sets


@dataclass(frozen=True, slots=True)
class Decision:
    """How one study ended."""

    verdict: str
    sets: int
    baseline_agrees: bool


def with_looks(baseline: Arm, repeat: Arm, candidate: Arm, *, delta: float) -> Decision:
    """A study that looks at 3, 5 and 8 sets and stops at the first look that decides."""
    for look in speed.LOOKS:
        got = speed.compare_at_look(baseline[: look.sets], repeat[: look.sets], candidate[: look.sets], delta=delta)
        if speed.decided(got, look.sets, delta=delta):
            return Decision(got.verdict, look.sets, got.baseline_agrees)
    raise AssertionError("the last look decides")


def headline(baseline: Arm, repeat: Arm, candidate: Arm, *, delta: float) -> Decision:
    """One comparison of five fresh sets at 95 %."""
    first = slice(0, speed.HEADLINE_SETS)
    got = speed.compare(baseline[first], repeat[first], candidate[first], delta=delta)
    return Decision(got.verdict, speed.HEADLINE_SETS, got.baseline_agrees)


def against_both(baseline: Arm, repeat: Arm, candidate: Arm, *, delta: float) -> Decision:
    """The headline with the geometric mean of A and A' as its reference: an alternative that is measured, not used."""
    both = [
        [math.sqrt(one * other) for one, other in zip(ours, again, strict=True)]
        for ours, again in zip(baseline, repeat, strict=True)
    ]
    return headline(both, repeat, candidate, delta=delta)


def family(arms: Sequence[Arm], *, delta: float) -> Decision:
    """Several candidates of one family, each compared once and held to Holm: ``faster`` when any of them is claimed."""
    baseline, repeat, *candidates = arms
    compared: list[SpeedComparison] = [speed.compare(baseline, repeat, it, delta=delta) for it in candidates]
    held = speed.hold_to_family(compared, alpha=0.05)
    order = ("faster", "slower", "inconclusive", "no-effect")
    return Decision(min((it.verdict for it in held), key=order.index), len(baseline), held[0].baseline_agrees)


class Procedure(Protocol):
    """From the sets of a baseline, its repeat and a candidate to a decision."""

    def __call__(self, baseline: Arm, repeat: Arm, candidate: Arm, *, delta: float) -> Decision:
        """Decide."""
        ...


PROCEDURES: Mapping[str, Procedure] = {
    "looks 3 / 5 / 8": with_looks,
    "headline, 5 sets": headline,
    "not used: mean of A and A' as the reference, 5 sets": against_both,
}
UNUSED = frozenset(name for name, it in PROCEDURES.items() if it is against_both)


@dataclass(frozen=True, slots=True)
class Tally:
    """Verdicts of many studies of one scenario with one true speedup."""

    scenario: str
    procedure: str
    speedup: float
    studies: int
    verdicts: dict[str, int]
    disturbed: int
    mean_sets: float

    def count(self, *verdicts: str) -> int:
        """How many studies ended with one of these verdicts."""
        return sum(self.verdicts.get(it, 0) for it in verdicts)


def simulate(scenario: Scenario, *, speedup: float, studies: int, seed: int, delta: float) -> list[Tally]:
    """Run both procedures on the same simulated machine, each study on sets of its own."""
    source = random.Random(f"{seed} {scenario.name} {speedup}")
    decisions: dict[str, list[Decision]] = {name: [] for name in PROCEDURES}
    for _ in range(studies):
        arms = draw_arms(source, scenario, sets=LAST_LOOK, rounds=ROUNDS, speedups=(1.0, 1.0, speedup))
        for name, study in PROCEDURES.items():
            decisions[name].append(study(*arms, delta=delta))
    return [tally(scenario.name, procedure, speedup, it) for procedure, it in decisions.items()]


def simulate_family(scenario: Scenario, *, members: int, studies: int, seed: int, delta: float) -> Tally:
    """A family of candidates none of which is any faster or slower."""
    source = random.Random(f"{seed} {scenario.name} family")
    speedups = (1.0,) * (members + 2)
    decisions = [
        family(draw_arms(source, scenario, sets=speed.HEADLINE_SETS, rounds=ROUNDS, speedups=speedups), delta=delta)
        for _ in range(studies)
    ]
    return tally(scenario.name, f"family of {members}, Holm", 1.0, decisions)


def tally(scenario: str, procedure: str, speedup: float, decisions: Sequence[Decision]) -> Tally:
    return Tally(
        scenario=scenario,
        procedure=procedure,
        speedup=speedup,
        studies=len(decisions),
        verdicts=dict(Counter(it.verdict for it in decisions)),
        disturbed=sum(not it.baseline_agrees for it in decisions),
        mean_sets=sum(it.sets for it in decisions) / len(decisions),
    )
