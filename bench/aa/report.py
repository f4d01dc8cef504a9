"""Tallies as Markdown and JSON, every rate with its Wilson interval."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.aa.procedure import Tally

PROMISED = 0.05
_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of studies with its 95 % interval (Wilson 1927, *Probable inference*)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f}-{100 * self.high:.1f})"


def rate(count: int, of: int) -> Rate:
    """The Wilson score interval of a share. Raises :class:`ValueError` for no trials or an impossible count."""
    if not 0 <= count <= of or of == 0:
        raise ValueError(f"{count} of {of} is no share.")
    share = count / of
    middle = (share + _Z**2 / (2 * of)) / (1 + _Z**2 / of)
    half = _Z / (1 + _Z**2 / of) * math.sqrt(share * (1 - share) / of + _Z**2 / (4 * of**2))
    return Rate(share, max(0.0, middle - half), min(1.0, middle + half))


def false_alarms(tally: Tally) -> Rate:
    """Claims of a difference where there is none."""
    return rate(tally.count("faster", "slower"), tally.studies)


def found(tally: Tally) -> Rate:
    """Claims in the right direction."""
    return rate(tally.count("faster" if tally.speedup > 1 else "slower"), tally.studies)


def wrong_way(tally: Tally) -> Rate:
    """Claims in the wrong direction."""
    return rate(tally.count("slower" if tally.speedup > 1 else "faster"), tally.studies)


def denied(tally: Tally) -> Rate:
    """Verdicts of "no effect"."""
    return rate(tally.count("no-effect"), tally.studies)


def markdown(simulated: Sequence[Tally], real: Sequence[Tally], facts: dict[str, Any]) -> str:
    """The whole report."""
    lines = ["# False alarms and power of the measuring procedure", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    nothing = [it for it in simulated if it.speedup == 1]
    if nothing:
        lines += ["", "## Simulated: nothing changed", "", *_nothing(nothing), "", _judgement(nothing)]
    effects = [it for it in simulated if it.speedup != 1]
    if effects:
        lines += ["", "## Simulated: a true effect", "", *_effects(effects)]
    if real:
        lines += ["", "## This machine: the baseline in all three roles", "", *_nothing(real), "", _judgement(real)]
    return "\n".join(lines) + "\n"


def write(directory: Path, simulated: Sequence[Tally], real: Sequence[Tally], facts: dict[str, Any]) -> None:
    """``aa.md`` and ``aa.json`` in that directory, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "aa.md").write_text(markdown(simulated, real, facts), encoding="utf-8")
    document = {
        "facts": facts,
        "simulated": [asdict(it) for it in simulated],
        "real": [asdict(it) for it in real],
    }
    (directory / "aa.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _nothing(tallies: Sequence[Tally]) -> list[str]:
    head = [
        "| scenario | procedure | false alarms | no effect | A/A gate closed | sets | studies |",
        "|---|---|---|---|---|---|---|",
    ]
    return head + [
        f"| {it.scenario} | {it.procedure} | {false_alarms(it)} | {denied(it)} | {rate(it.disturbed, it.studies)} "
        f"| {it.mean_sets:.1f} | {it.studies} |"
        for it in tallies
    ]


def _effects(tallies: Sequence[Tally]) -> list[str]:
    head = [
        "| scenario | procedure | true speedup | found | wrong direction | no effect | sets |",
        "|---|---|---|---|---|---|---|",
    ]
    return head + [
        f"| {it.scenario} | {it.procedure} | {it.speedup:.3g} | {found(it)} | {wrong_way(it)} | {denied(it)} "
        f"| {it.mean_sets:.1f} |"
        for it in tallies
    ]


def _judgement(tallies: Sequence[Tally]) -> str:
    over = [it for it in tallies if false_alarms(it).low > PROMISED]
    worst = max(tallies, key=lambda it: false_alarms(it).value)
    highest = f"The highest rate is {false_alarms(worst)}, {worst.procedure}, {worst.scenario}."
    if not over:
        return f"No rate of false alarms is shown to exceed {PROMISED:.0%}. {highest}"
    return f"{len(over)} of {len(tallies)} rates of false alarms exceed {PROMISED:.0%}. {highest}"
