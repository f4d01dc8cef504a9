"""``python -m bench.crossover --out docs/benchmarks/crossover``: does a lever gain within one launch what it gains in
launches of its own?

For every lever that a process can switch, and every example: the ratio from launches that switch, and the ratio from
launches that do not, each with its interval over launches, and the ratio of both with an interval of its own (Welch).
Where that excludes 1 after Holm's procedure over all settings, a switch measures something else than a launch, and a
screening may choose wrongly there. Beside both ratios stand the page faults of a step with the setting: levers that are
switched in one process share what its allocator keeps. ``--base LEVER`` measures everything on top of a lever.

Rows of other examples, or on top of another lever, that an earlier run wrote to OUT stay in its table.

A setting that fails is left out, and the rest is measured again. With ``--pieces FOLDER`` each answer is stored, and
the same command goes on after it; ``--minutes`` ends a call after so long, with a table of what is measured, which says
what is left. Of an example with ten settings on two quiet cores, a launch that switches takes about 90 s, and a
replicate of up to four settings next to the unmodified script twice about 60 s: 25 minutes with four replicates. Two
replicates of each kind give intervals; they take half of that.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median, stdev

import msgspec

from bench.pieces import UNFINISHED, KeptAnswers, TimeIsUp, add_options, until_of
from bench.regret.__main__ import EXAMPLES, SIZES
from bench.report import command_line, machine_line, table, write, written
from hotlap import plan as plans_of
from hotlap.api import local_executor
from hotlap.errors import HotlapError
from hotlap.experiment.draft import StudyDraft, say_nothing
from hotlap.experiment.failures import Failure
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.stages import begin, blank_study
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever, all_levers
from hotlap.measure import student
from hotlap.measure.levels import geometric
from hotlap.measure.speed import HEADLINE_CONFIDENCE, holm
from hotlap.procedures.screenings import can_switch
from hotlap.records import Estimate, Plan, Replicate, Run, Setting, Situation, Workload
from hotlap.trial.executor import OneSlot

ROUNDS = 10
FAMILY_ALPHA = 0.05
_ALL_EQUAL = 1e-12
_FEWEST_REPLICATES = 2
"""Fewer have no interval."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting on one example: its ratios, how many times as large the first is as the second, and the p-value of
    "they are equal". ``trouble`` says why there are none. ``base`` is the lever that all launches have, and the faults
    are page faults per step with the setting, within one launch and over launches."""

    example: str
    setting: str
    within: Estimate | None = None
    over: Estimate | None = None
    apart: Estimate | None = None
    p_value: float | None = None
    trouble: str = ""
    base: str = ""
    launches: int = 0
    within_faults: float | None = None
    over_faults: float | None = None
    machine: str = ""


@dataclass
class Seen:
    """The logarithms of speedups and the page faults per step of each setting, one of each replicate, and why a setting
    has none."""

    logs: dict[Setting, list[float]] = field(default_factory=dict)
    faults: dict[Setting, list[float]] = field(default_factory=dict)
    trouble: dict[Setting, str] = field(default_factory=dict)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.crossover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--examples", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--replicates", type=int, default=4, help="launches of each kind, at least 2 (default: 4)")
    parser.add_argument("--base", choices=sorted(all_levers()), help="a lever that all launches have (default: none)")
    add_options(parser)
    options = parser.parse_args(arguments)
    if options.replicates < 2:
        parser.error("--replicates must be at least 2")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Measure example after example; the report is written after each, so that a cut loses nothing."""
    options = parse(arguments)
    until = until_of(options)
    rows, base = earlier(options.out), options.base or ""
    left: list[str] = []
    for name in options.examples:
        with tempfile.TemporaryDirectory(prefix="hotlap-crossover-") as folder:
            pieces = options.pieces / (f"{name}-{base}" if base else name) if options.pieces else None
            executor = KeptAnswers(local_executor(Path(folder)), pieces, until)
            try:
                found = measure(name, options.replicates, executor, base=options.base)
            except TimeIsUp:
                left.append(name)
                continue
            except HotlapError as error:
                rows.append(Row(name, "", trouble=str(error), base=base))
                continue
        rows = [*(it for it in rows if (it.example, it.base) != (name, base)), *found.rows]
        left += [] if found.is_whole else [name]
        write(
            options.out,
            title="Levers within one launch and over launches",
            command=command_line("bench.crossover"),
            text=text_of(sorted(rows, key=_place), left),
            data=msgspec.to_builtins(sorted(rows, key=_place)),
        )
    if left:
        print(f"Left, for the same command again: {', '.join(left)}", file=sys.stderr)
    return UNFINISHED if left else 0


def earlier(out: Path) -> list[Row]:
    """The rows that an earlier run wrote."""
    return msgspec.convert(written(out) or [], list[Row])


def _place(row: Row) -> tuple[str, str]:
    return row.example, row.base


@dataclass(frozen=True, slots=True)
class Measured:
    """A row for each setting of an example; not ``is_whole`` where the time ended before all replicates."""

    rows: list[Row]
    is_whole: bool


def measure(
    name: str,
    replicates: int,
    executor: OneSlot,
    levers: Mapping[str, Lever] | None = None,
    base: str | None = None,
) -> Measured:
    """All settings of one example, on top of the lever ``base``.

    Raises :class:`HotlapError` where it cannot be measured, and :class:`TimeIsUp` where the time ended before its
    settings are known.
    """
    workload = Workload(
        kind="script",
        target=str(EXAMPLES / f"{name}.py"),
        arguments=SIZES[name],
        directory=str(EXAMPLES),
        python=sys.executable,
    )
    trials = Trials(workload, Options(), JournaledExecutor(executor))
    draft = StudyDraft(blank_study(workload, trials.options, None), trials, None, say_nothing)
    known = all_levers() if levers is None else levers
    situation = _situation(trials, draft)
    below = plans_of.EMPTY if base is None else _alone(known[base].candidates(situation)[0])
    settings = _settings(situation, known)
    print(f"{name}: {', '.join(map(plans_of.describe, settings))}", file=sys.stderr, flush=True)
    within, over = Seen(), Seen()
    is_whole = True
    try:
        in_one_launch(trials, below, settings, replicates, within)
        in_launches(trials, below, [it for it in settings if it in within.logs], replicates, over)
    except TimeIsUp:
        is_whole = False
    rows = (row_of(name, it, within, over, replicates) for it in settings)
    return Measured([replace(it, base=base or "", machine=machine_line()) for it in rows], is_whole)


def _situation(trials: Trials, draft: StudyDraft) -> Situation:
    machine, observation = begin(trials, draft)
    return Situation(
        facts=observation.facts,
        machine=machine,
        account=observation.account,
        device_peak_bytes=observation.run.device_peak_bytes,
        host_peak_bytes=observation.run.host_peak_bytes,
    )


def _settings(situation: Situation, levers: Mapping[str, Lever]) -> list[Setting]:
    """The first setting of each lever that can be switched here."""
    found = []
    for lever in levers.values():
        if lever.switch is None or lever.obstacle(situation) is not None:
            continue
        found += [it for it in lever.candidates(situation) if can_switch(lever, it)][:1]
    return found


def in_one_launch(trials: Trials, base: Plan, settings: Sequence[Setting], replicates: int, seen: Seen) -> None:
    """Launches in which all settings and nothing, twice, take turns."""

    def take(waiting: Sequence[Setting]) -> Replicate | Failure:
        arms = [base, base, *(plans_of.with_setting(base, it) for it in waiting)]
        return trials.take_replicate(arms, rounds=ROUNDS, purpose="crossover", one_launch=True)

    _take_all(take, list(settings), replicates, seen)


def in_launches(trials: Trials, base: Plan, settings: Sequence[Setting], replicates: int, seen: Seen) -> None:
    """Replicates of the unmodified script, twice, and as many settings as run next to it."""
    size = max(1, trials.arms_at_once - 2)
    for first in range(0, len(settings), size):
        group = list(settings[first : first + size])
        purpose = f"launches {' '.join(plans_of.key(_alone(it)) for it in group)}"

        def take(waiting: Sequence[Setting], purpose: str = purpose) -> Replicate | Failure:
            arms = [base, base, *(plans_of.with_setting(base, it) for it in waiting)]
            return trials.take_replicate(arms, rounds=ROUNDS, purpose=purpose)

        _take_all(take, group, replicates, seen)


def _take_all(
    take: Callable[[Sequence[Setting]], Replicate | Failure], waiting: list[Setting], replicates: int, seen: Seen
) -> None:
    """Add replicates of all settings; one that fails is left out from then on."""
    seen.logs |= {it: [] for it in waiting}
    while waiting and len(seen.logs[waiting[0]]) < replicates:
        turns = take(waiting)
        if not isinstance(turns, Failure):
            for arm, it in enumerate(waiting, start=2):
                seen.logs[it].append(_speedup_log(turns, arm))
                seen.faults.setdefault(it, []).append(_faults_of_a_step(turns.runs[arm]))
            continue
        failed = waiting[turns.arm - 2 :][:1] if turns.arm >= 2 else waiting
        for it in failed:
            seen.trouble[it] = turns.reason
            del seen.logs[it]
        waiting = [it for it in waiting if it not in failed]


def _speedup_log(turns: Replicate, arm: int) -> float:
    """Of an arm, over the unmodified script, which is there twice: the mean of both, whose noise all arms share."""
    rounds = zip(turns.rounds[0], turns.rounds[1], turns.rounds[arm], strict=True)
    return fmean((math.log(one) + math.log(other)) / 2 - math.log(own) for one, other, own in rounds)


def _faults_of_a_step(run: Run) -> float:
    """Page faults per step of an arm, without its warm-up."""
    blocks = run.blocks[run.warm_up_blocks :]
    return sum(it.page_faults for it in blocks) / max(1, sum(it.steps for it in blocks))


def _alone(setting: Setting) -> Plan:
    return plans_of.with_setting(plans_of.EMPTY, setting)


def row_of(name: str, setting: Setting, within: Seen, over: Seen, replicates: int) -> Row:
    """Compare the two ways of measuring a setting, from as many replicates as there are."""
    what = plans_of.describe(setting)
    trouble = within.trouble.get(setting) or over.trouble.get(setting)
    if trouble:
        return Row(name, what, trouble=trouble)
    one, other = within.logs.get(setting, []), over.logs.get(setting, [])
    if min(len(one), len(other)) < _FEWEST_REPLICATES:
        so_far = f"{len(one)} of {replicates} launches that switch, {len(other)} of {replicates} of its own"
        return Row(name, what, trouble=f"Not measured yet: {so_far}.")
    ratios = [geometric(it, "x", HEADLINE_CONFIDENCE) for it in (one, other)]
    apart, p_value = welch(one, other)
    faults = [fmean(it.faults[setting]) for it in (within, over)]
    launches = min(len(one), len(other))
    return Row(name, what, *ratios, apart, p_value, launches=launches, within_faults=faults[0], over_faults=faults[1])


def welch(one: Sequence[float], other: Sequence[float]) -> tuple[Estimate, float]:
    """How many times as large the first ratio is as the second, of logarithms, and the p-value of "equal".

    Welch (1947), *The generalization of Student's problem when several different population variances are involved*.
    """
    variances = [stdev(it) ** 2 / len(it) for it in (one, other)]
    error, mean = math.sqrt(sum(variances)), fmean(one) - fmean(other)
    if error < _ALL_EQUAL:
        value = math.exp(mean)
        return Estimate(value=value, low=value, high=value, unit="x"), float(abs(mean) < _ALL_EQUAL)
    degrees = sum(variances) ** 2 / sum(
        it**2 / (len(logs) - 1) for it, logs in zip(variances, (one, other), strict=True)
    )
    reach = student.quantile((1 + HEADLINE_CONFIDENCE) / 2, round(degrees, 3)) * error
    low, value, high = (math.exp(it) for it in (mean - reach, mean, mean + reach))
    return Estimate(value=value, low=low, high=high, unit="x"), 2 * student.survival(abs(mean) / error, degrees)


def text_of(rows: Sequence[Row], left: Sequence[str] = ()) -> str:
    """The table, where the two disagree, and what is ``left``."""
    cells = [(it.example, it.base, it.setting, *_cells(it)) for it in rows]
    both = [it for it in rows if it.p_value is not None]
    adjusted = holm([it.p_value or 0.0 for it in both])
    far = [it for it, p in zip(both, adjusted, strict=True) if p <= FAMILY_ALPHA]
    unfinished = f"Not finished: {', '.join(left)}. Rows may have fewer launches, and the same command goes on."
    lines = [
        *([unfinished, ""] if left else []),
        f"{ROUNDS} rounds in each launch, 95 % intervals over launches. Above 1 is faster than the script with the",
        "lever in the second column, or unmodified; within / over is the first ratio divided by the second. Page",
        "faults are those of a step with the setting, within one launch and over launches.",
        "",
        table(_HEADS, cells),
        "",
    ]
    if not both:
        return "\n".join([*lines, "No setting was measured both ways."])
    apart = [it.apart for it in both if it.apart is not None]
    distances = [abs(math.log(it.value)) for it in apart]
    widths = [math.sqrt(it.high / it.low) - 1 for it in apart]
    lines.append(
        f"The two differ by {100 * math.expm1(fmean(distances)):.1f} % on average; half of the intervals of that "
        f"ratio reach {100 * median(widths):.1f} % or less to either side. They disagree beyond noise (5 %, "
        f"Holm's procedure over {len(both)} settings) for {len(far)}"
        + (f": {', '.join(f'{it.setting} of {it.example}' for it in far)}." if far else ".")
    )
    machines = {it.example: it.machine for it in rows if it.machine not in ("", machine_line())}
    if machines:
        lines += ["", "By earlier runs on other machines:", ""]
        lines += [f"- {example}: {machine}." for example, machine in machines.items()]
    return "\n".join(lines)


_HEADS = (
    "example",
    "on top of",
    "setting",
    "launches of each kind",
    "within one launch",
    "over launches",
    "within / over",
    "page faults",
)


def _cells(row: Row) -> tuple[str, ...]:
    if row.trouble:
        return row.trouble, "", "", "", ""
    faults = "unknown"
    if row.within_faults is not None and row.over_faults is not None:
        faults = f"{row.within_faults:,.0f} / {row.over_faults:,.0f}"
    return str(row.launches), *map(_ratio, (row.within, row.over, row.apart)), faults


def _ratio(found: Estimate | None) -> str:
    return "" if found is None else f"{found.value:.3f}x ({found.low:.3f} to {found.high:.3f})"


if __name__ == "__main__":
    raise SystemExit(main())
