"""The procedure under test: interim analyses with early stopping, a family of levers, and the final headline."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.aa.noise import Arm, Scenario, draw_arms
from hotlap.measure import speed
from hotlap.records import SpeedComparison

ROUNDS = 15
LAST_ANALYSIS = speed.ANALYSES[-1].replicates


@dataclass(frozen=True, slots=True)
class Decision:
    """How one study ended."""

    verdict: str
    replicates: int
    baseline_agrees: bool


def with_analyses(baseline: Arm, repeat: Arm, candidate: Arm, *, delta: float) -> Decision:
    """A study that is analysed after 3, 5 and 8 replicates and stops at the first analysis that decides."""
    for analysis in speed.ANALYSES:
        got = speed.compare_at_analysis(
            baseline[: analysis.replicates],
            repeat[: analysis.replicates],
            candidate[: analysis.replicates],
            delta=delta,
        )
        if speed.decided(got, analysis.replicates, delta=delta):
            return Decision(got.verdict, analysis.replicates, got.baseline_agrees)
    raise AssertionError("the last analysis decides")


def headline(baseline: Arm, repeat: Arm, candidate: Arm, *, delta: float) -> Decision:
    """One comparison of five fresh replicates at 95 %."""
    first = slice(0, speed.HEADLINE_REPLICATES)
    got = speed.compare(baseline[first], repeat[first], candidate[first], delta=delta)
    return Decision(got.verdict, speed.HEADLINE_REPLICATES, got.baseline_agrees)


def against_one(baseline: Arm, repeat: Arm, candidate: Arm, *, delta: float) -> Decision:
    """The headline with A alone as its reference, as it was before: an alternative that is measured, not used."""
    first = slice(0, speed.HEADLINE_REPLICATES)
    got = speed.compare_single(baseline[first], candidate[first], gate=(baseline[first], repeat[first]), delta=delta)
    return Decision(got.verdict, speed.HEADLINE_REPLICATES, got.baseline_agrees)


def family(arms: Sequence[Arm], *, delta: float) -> Decision:
    """Several candidates of one family, each compared once and held to Holm: ``faster`` when any of them is claimed."""
    baseline, repeat, *candidates = arms
    compared: list[SpeedComparison] = [speed.compare(baseline, repeat, it, delta=delta) for it in candidates]
    held = speed.hold_to_family(compared, alpha=0.05)
    order = ("faster", "slower", "inconclusive", "no-effect")
    return Decision(min((it.verdict for it in held), key=order.index), len(baseline), held[0].baseline_agrees)


class Procedure(Protocol):
    """From the replicates of a baseline, its repeat and a candidate to a decision."""

    def __call__(self, baseline: Arm, repeat: Arm, candidate: Arm, *, delta: float) -> Decision:
        """Decide."""
        ...


PROCEDURES: Mapping[str, Procedure] = {
    "analyses after 3 / 5 / 8": with_analyses,
    "headline, 5 replicates": headline,
    "not used: A alone as the reference, 5 replicates": against_one,
}
UNUSED = frozenset(name for name, it in PROCEDURES.items() if it is against_one)


@dataclass(frozen=True, slots=True)
class Tally:
    """Verdicts of many studies of one scenario with one true speedup."""

    scenario: str
    procedure: str
    speedup: float
    studies: int
    verdicts: dict[str, int]
    disturbed: int
    mean_replicates: float

    def count(self, *verdicts: str) -> int:
        """How many studies ended with one of these verdicts."""
        return sum(self.verdicts.get(it, 0) for it in verdicts)


def simulate(scenario: Scenario, *, speedup: float, studies: int, seed: int, delta: float) -> list[Tally]:
    """Run both procedures on the same simulated machine, each study on replicates of its own."""
    source = random.Random(f"{seed} {scenario.name} {speedup}")
    decisions: dict[str, list[Decision]] = {name: [] for name in PROCEDURES}
    for _ in range(studies):
        arms = draw_arms(source, scenario, replicates=LAST_ANALYSIS, rounds=ROUNDS, speedups=(1.0, 1.0, speedup))
        for name, study in PROCEDURES.items():
            decisions[name].append(study(*arms, delta=delta))
    return [tally(scenario.name, procedure, speedup, it) for procedure, it in decisions.items()]


def simulate_family(scenario: Scenario, *, members: int, studies: int, seed: int, delta: float) -> Tally:
    """A family of candidates none of which is any faster or slower."""
    source = random.Random(f"{seed} {scenario.name} family")
    speedups = (1.0,) * (members + 2)
    decisions = [
        family(
            draw_arms(source, scenario, replicates=speed.HEADLINE_REPLICATES, rounds=ROUNDS, speedups=speedups),
            delta=delta,
        )
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
        mean_replicates=sum(it.replicates for it in decisions) / len(decisions),
    )
