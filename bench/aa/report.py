"""Tallies as a Markdown text, every rate with an interval: Wilson's of thousands of studies, else the exact one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.aa.placebos import Placebo
from bench.aa.placebos import settings as placebo_settings
from bench.aa.procedure import UNUSED, Tally
from bench.aa.searches import FEW_SWITCHABLE, GAIN, LAUNCHED, PROCEDURES, SCRIPTS, SWITCHABLE, VARIABLES, Searches
from bench.report import table

PROMISED = 0.05
_Z = 1.959963984540054
_TAIL = 0.025
_HALVINGS = 60


@dataclass(frozen=True, slots=True, order=True)
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
        raise ValueError(f"{count} of {of} is not a share.")
    share = count / of
    middle = (share + _Z**2 / (2 * of)) / (1 + _Z**2 / of)
    half = _Z / (1 + _Z**2 / of) * math.sqrt(share * (1 - share) / of + _Z**2 / (4 * of**2))
    return Rate(share, max(0.0, middle - half), min(1.0, middle + half))


def exact_rate(count: int, of: int) -> Rate:
    """The exact interval of a share (Clopper and Pearson 1934, *The use of confidence or fiducial limits*).

    Raises :class:`ValueError` for no trials or an impossible count.
    """
    if not 0 <= count <= of or of == 0:
        raise ValueError(f"{count} of {of} is not a share.")
    low = 0.0 if count == 0 else _share_where(lambda share: 1 - _at_most(count - 1, of, share) - _TAIL)
    high = 1.0 if count == of else _share_where(lambda share: _TAIL - _at_most(count, of, share))
    return Rate(count / of, low, high)


def _at_most(count: int, of: int, share: float) -> float:
    """The probability of at most so many of ``of``."""
    return math.fsum(math.comb(of, it) * share**it * (1 - share) ** (of - it) for it in range(count + 1))


def _share_where(rises: Callable[[float], float]) -> float:
    """The share at which a rising function is zero."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < 0 else (low, middle)
    return (low + high) / 2


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


TITLES = {
    "searches": "simulated searches",
    "simulated": "simulated studies of one lever",
    "real_searches": "whole searches in real launches",
    "real": "the baseline in all three roles",
}
"""What the parts of the report are called."""


def markdown(
    simulated: Sequence[Tally],
    real: Sequence[Tally],
    settings: dict[str, object],
    searches: Sequence[Searches] = (),
    real_searches: Sequence[Placebo] = (),
    *,
    kept: str = "",
) -> str:
    """The report below its head; ``kept`` says what is of an earlier run."""
    lines = ["; ".join(f"{name}: {value}" for name, value in settings.items()) + "."]
    if kept:
        lines += ["", kept]
    nothing = [it for it in simulated if it.speedup == 1]
    effects = [it for it in simulated if it.speedup != 1]
    if searches:
        lines += ["", "## Simulated: whole searches", "", searches_text(searches)]
    if nothing:
        lines += ["", "## Simulated: nothing changed", "", _nothing(nothing), "", _judgement(nothing)]
    if effects:
        lines += ["", "## Simulated: a true effect, found", "", _power(effects), "", _mistakes(effects)]
    if real_searches:
        lines += ["", "## Real launches: whole searches", "", real_searches_text(real_searches)]
    if real:
        lines += ["", "## Real launches: the baseline in all three roles", "", _nothing(real), "", _judgement(real)]
    return "\n".join(lines)


def searches_text(searches: Sequence[Searches]) -> str:
    """How many searches ended with a plan where no lever helps, and how many found the one that does."""
    nothing = [it for it in searches if it.gain == 1]
    helped = {(it.scenario, it.procedure): it for it in searches if it.gain != 1}
    rows = []
    for it in nothing:
        other = helped.get((it.scenario, it.procedure))
        of_others = ("",) * 3 if other is None else (_of(other.found, other), str(other.alarms), str(other.variables))
        rows.append([it.scenario, it.procedure, _of(it.plans, it), f"{it.launches:.0f}", *of_others])
    found_it = f"found {GAIN:.2f}x"
    header = ("scenario", "first measurements", "ended with a plan", "launches", found_it, "and another", "a variable")
    not_switched = len(LAUNCHED) + len(VARIABLES)
    lines = [
        f"The search of `hotlap tune` through the fake executor of the tests, on {len(SCRIPTS)} scripts in turns, with",
        f"{len(SWITCHABLE) + not_switched} levers none of which changes the time of a step: every plan is a false",
        f"alarm. *{PROCEDURES[0].capitalize()}*: {len(SWITCHABLE)} of the levers can be switched while a script",
        f"trains. *{PROCEDURES[1].capitalize()}*: {len(FEW_SWITCHABLE)} can, of {len(FEW_SWITCHABLE) + not_switched}",
        f"levers, so that their first launch has all combinations of them. *{PROCEDURES[3].capitalize()}*: the time",
        "suffices for one plan; levers that only look faster are then verified together. The last three columns are of",
        "other searches, in which one lever makes steps",
        f"{GAIN:.2f} times as fast: how many plans have it, how many have another lever without an effect as well, and",
        f"how many an exact variable without an effect ({' or '.join(VARIABLES)}), which may join a plan on less",
        "evidence. Intervals are exact (Clopper and Pearson), at 95 %.",
        "",
        table(header, rows),
        "",
    ]
    totals = []
    for procedure in PROCEDURES:
        mine = [it for it in nothing if it.procedure == procedure]
        if mine:
            plans, studies = sum(it.plans for it in mine), sum(it.studies for it in mine)
            totals.append(f"{procedure}: {plans} of {studies} searches ended with a plan, {exact_rate(plans, studies)}")
    over = [it for it in nothing if exact_rate(it.plans, it.studies).low > PROMISED]
    kept = "No scenario is shown to exceed" if not over else f"{len(over)} of {len(nothing)} rows exceed"
    lines.append(f"All scenarios together, {'; '.join(totals)}. {kept} {PROMISED:.0%}.")
    return "\n".join(lines)


def real_searches_text(searches: Sequence[Placebo]) -> str:
    """How many searches with levers that change nothing ended with a plan."""
    plans = [it for it in searches if it.levers]
    minutes = fmean(it.seconds for it in searches) / 60
    ended = Counter(it.status for it in searches)
    lines = [
        "Searches in real launches over a small script, with real levers whose settings change nothing there: "
        f"{', '.join(it.lever for it in placebo_settings())}.",
        f"{len(plans)} of {len(searches)} ended with a plan, {exact_rate(len(plans), len(searches))}, exact interval. "
        f"They took {minutes:.1f} min on average and ended as {', '.join(f'{it} ({n})' for it, n in ended.items())}.",
    ]
    lines += [f"- a plan with {', '.join(it.levers)}" for it in plans]
    return "\n".join(lines)


def _of(count: int, searches: Searches) -> str:
    return f"{count} of {searches.studies}, {exact_rate(count, searches.studies)}"


def _nothing(tallies: Sequence[Tally]) -> str:
    header = ["scenario", "procedure", "false alarms", "no effect", "A/A gate closed", "mean replicates", "studies"]
    rows = [
        [
            it.scenario,
            it.procedure,
            str(false_alarms(it)),
            str(denied(it)),
            str(rate(it.disturbed, it.studies)),
            f"{it.mean_replicates:.1f}",
            str(it.studies),
        ]
        for it in tallies
    ]
    return table(header, rows)


def _power(tallies: Sequence[Tally]) -> str:
    speedups = sorted({it.speedup for it in tallies})
    cells = {(it.scenario, it.procedure, it.speedup): it for it in tallies}
    rows = [
        [scenario, procedure, *(str(found(cells[scenario, procedure, speedup])) for speedup in speedups)]
        for scenario, procedure in dict.fromkeys((it.scenario, it.procedure) for it in tallies)
    ]
    return table(["scenario", "procedure", *(f"{speedup:.3g} x" for speedup in speedups)], rows)


def _judgement(tallies: Sequence[Tally]) -> str:
    used = [it for it in tallies if it.procedure not in UNUSED]
    over = [it for it in used if false_alarms(it).low > PROMISED]
    worst = max(used, key=false_alarms)
    highest = f"The highest rate of false alarms is {false_alarms(worst)} ({worst.procedure}; {worst.scenario})."
    if not over:
        return f"No procedure in use is shown to exceed {PROMISED:.0%}. {highest}"
    return f"{len(over)} of {len(used)} rates of procedures in use exceed {PROMISED:.0%}. {highest}"


def _mistakes(tallies: Sequence[Tally]) -> str:
    used = [it for it in tallies if it.procedure not in UNUSED]
    wrong, missed = max(used, key=wrong_way), max(used, key=denied)
    return (
        f"Wrong direction at most {wrong_way(wrong)} ({wrong.procedure}; {wrong.scenario}; {wrong.speedup:.3g} x). "
        f'"No effect" although there is one at most {denied(missed)} ({missed.procedure}; {missed.scenario}; '
        f"{missed.speedup:.3g} x)."
    )
