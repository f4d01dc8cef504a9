"""``python -m bench.regret.simulated --out docs/benchmarks/regret-simulated``: what hundreds of searches leave behind.

A search in real launches is one draw: noise decides which levers of a few per cent it finds. Here the real search runs
through the fake executor of the tests, on scripts of which the best plan is known (:mod:`bench.regret.scripts`), with
noise as :mod:`bench.aa.noise` draws it. A search takes about a tenth of a second, and its clock counts the seconds that
real children would have taken. It shows what a rule of the search is worth before real launches confirm it.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

import msgspec

from bench.aa.noise import Scenario
from bench.aa.searches import WORKLOAD, Disturbed, FakeScript
from bench.pieces import UNFINISHED, TimeIsUp, add_options, check_time, piece, until_of
from bench.regret.report import WANTED
from bench.regret.scripts import CASES, KEPT_MEMORY
from bench.report import command_line, table, write
from hotlap import plan as plans_of
from hotlap.experiment.options import Options
from hotlap.procedures.search import tune
from hotlap.records import Assignment, CompileReport, LaunchRequest, Plan, Replicate, Run, Setting, TurnRequest

from fake_findings import rules_of  # isort: skip  # below the tests that bench.aa.searches puts on the path

MACHINES = {
    "shared": Scenario(name="shared", launch=0.015, block=0.025),
    "busy": Scenario(name="busy", launch=0.02, block=0.045, drift=0.05, spikes=0.08),
}
"""Two cores as the benchmarks of this project had them, at better and at worse hours."""

BUDGETS = (4.0, 7.0, 16.0)
CORES = 2
LOADING_SHARE = 0.15
"""Of the seconds in which a first launch compiles: what later ones need to load the code."""

_WAVES, _WAVE_STAYS, _STEP_NOISE = 0.06, 0.9, 0.05

PLANS_SHOWN = 4
NOTHING = "nothing"


class Found(msgspec.Struct, kw_only=True, frozen=True):
    """A plan, what it has of the best plan's speed, and how many searches ended with it."""

    plan: str
    share: float
    searches: int


class Searches(msgspec.Struct, kw_only=True, frozen=True):
    """Searches of one script, on one machine, with one budget, and the plans that they found, most frequent first.
    ``nothing`` is what the unmodified script has of the best plan's speed, ``launches`` and ``seconds`` are means."""

    script: str
    machine: str
    minutes: float
    nothing: float
    plans: tuple[Found, ...]
    launches: float
    seconds: float

    @property
    def count(self) -> int:
        """How many searches these are."""
        return sum(it.searches for it in self.plans)

    @property
    def mean(self) -> float:
        """The mean of found / best."""
        return sum(it.share * it.searches for it in self.plans) / self.count

    def those(self, wanted: Callable[[Found], bool]) -> int:
        """How many searches ended with such a plan."""
        return sum(it.searches for it in self.plans if wanted(it))


class OnTwoCores(Disturbed):
    """As real processes do, one that switches levers keeps the memory that it freed, arms start beside each other, and
    what the compiler made in one launch is loaded by later ones."""

    def __init__(self, script: FakeScript, scenario: Scenario, *, seed: int) -> None:
        super().__init__(script, scenario, seed=seed)
        self._beside = 1
        self._compiled: set[Setting] = set()

    def take_turns(self, request: TurnRequest) -> Replicate:
        arms = tuple(map(_keeping_memory, request.arms)) if request.one_launch else request.arms
        self._beside = 1 if request.one_launch else len(arms)
        turns = super().take_turns(msgspec.structs.replace(request, arms=arms))
        asked = [it.plan for it in request.arms]
        self._compiled.update(setting for plan in asked for setting in plan.settings)
        runs = tuple(msgspec.structs.replace(run, plan=it) for run, it in zip(turns.runs, asked, strict=True))
        self._beside = 1
        return msgspec.structs.replace(turns, runs=runs)

    def launch_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        self._beside = len(requests)
        runs = super().launch_together(requests)
        self._pass_time(-(len(requests) - 1) * (self._crowded_start - self.script.startup_seconds))
        self._beside = 1
        return runs

    def seconds_of_starts(self, request: TurnRequest, runs: Sequence[Run]) -> float:
        """All arms start at the same time."""
        if request.one_launch:
            return super().seconds_of_starts(request, runs)
        return max(it.startup_seconds for it in runs)

    def _run(self, arm: Assignment, steps: int, noise: random.Random) -> Run:
        run = _wavering(super()._run(arm, steps, noise), noise)
        slow = sum(self._more_seconds(it) for it in arm.plan.settings)
        start = self._crowded_start + slow
        return msgspec.structs.replace(run, startup_seconds=start, compile=CompileReport(seconds=slow))

    @property
    def _crowded_start(self) -> float:
        """Each launch beyond one for each core adds its share to the start of all."""
        return self.script.startup_seconds * max(1.0, self._beside / CORES)

    def _more_seconds(self, setting: Setting) -> float:
        effect = self.script.effects.get(setting)
        seconds = effect.startup_seconds if effect is not None else 0.0
        return seconds * (LOADING_SHARE if setting in self._compiled else 1.0)


def _wavering(run: Run, noise: random.Random) -> Run:
    """The run with steps as the examples have them here: slow waves, and noise of each step."""
    wave, seconds = 0.0, []
    for it in run.steps.wall_seconds:
        wave = _WAVE_STAYS * wave + noise.gauss(0.0, _WAVES * math.sqrt(1 - _WAVE_STAYS**2))
        seconds.append(it * math.exp(wave + noise.gauss(0.0, _STEP_NOISE)))
    return msgspec.structs.replace(run, steps=msgspec.structs.replace(run.steps, wall_seconds=tuple(seconds)))


def _keeping_memory(arm: Assignment) -> Assignment:
    plan = arm.plan if KEPT_MEMORY in arm.plan.settings else plans_of.with_setting(arm.plan, KEPT_MEMORY)
    return msgspec.structs.replace(arm, plan=plan)


def searched(name: str, machine: str, minutes: float, seed: int) -> tuple[Plan, int, float]:
    """The plan of one search, its launches, and its seconds."""
    case = CASES[name]
    executor = OnTwoCores(case.script, MACHINES[machine], seed=seed)
    options = Options(budget_seconds=60 * minutes, seed=0)
    with patch.object(sys.modules["hotlap.diagnose.rank"], "all_rules", lambda: rules_of(*case.costs)):
        study = tune(WORKLOAD, options, executor, levers=case.levers(), clock=executor.clock)
    return study.plan, executor.launches, executor.seconds


def searches_of(name: str, machine: str, minutes: float, count: int, seed: int, until: float | None) -> Searches:
    """So many searches with different noise, on all cores."""
    check_time(until)
    script = CASES[name].script
    best = script.step_seconds(CASES[name].best())
    with Pool(os.cpu_count()) as pool:
        ended = pool.map(partial(searched, name, machine, minutes), range(seed, seed + count))
    counted = Counter((_words(plan), best / script.step_seconds(plan)) for plan, _, _ in ended)
    return Searches(
        script=name,
        machine=machine,
        minutes=minutes,
        nothing=best / script.step_seconds(Plan()),
        plans=tuple(Found(plan=plan, share=share, searches=it) for (plan, share), it in counted.most_common()),
        launches=fmean(launches for _, launches, _ in ended),
        seconds=fmean(seconds for _, _, seconds in ended),
    )


def _words(plan: Plan) -> str:
    return ", ".join(sorted(it.lever for it in plan.settings)) or NOTHING


def markdown(cells: Sequence[Searches]) -> str:
    """The table, and the plans that were found most often."""
    header = [
        "script",
        "machine",
        "budget",
        "searches",
        "found / best",
        f"at least {WANTED}",
        "no plan",
        "launches",
        "took",
    ]
    rows = [
        [
            it.script,
            it.machine,
            f"{it.minutes:g} min",
            str(it.count),
            f"{it.mean:.3f}",
            str(it.those(lambda found: found.share >= WANTED)),
            str(it.those(lambda found: found.plan == NOTHING)),
            f"{it.launches:.0f}",
            f"{it.seconds / 60:.1f} min",
        ]
        for it in cells
    ]
    lines = [
        "The search of `hotlap tune` through the fake executor of the tests. No time here is one of a real machine:",
        "the scripts have levers with effects like those that were measured with the examples, and noise like that of",
        "two shared cores, at better and at worse hours. Since their true times are known, so is the best plan.",
        "Found / best is the mean over searches; a search that ends without a plan has what the unmodified script has",
        "of the best plan's speed. Up to one in twenty does, because two copies of the unmodified script differ by",
        "chance.",
        "",
        table(header, rows),
    ]
    for it in cells:
        words = "; ".join(f"{found.plan} ({found.searches})" for found in it.plans[:PLANS_SHOWN])
        lines += ["", f"- {it.script}, {it.machine}, {it.minutes:g} min (unmodified: {it.nothing:.3f}): {words}."]
    return "\n".join(lines)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.regret.simulated", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--scripts", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--machines", nargs="+", choices=list(MACHINES), default=list(MACHINES))
    parser.add_argument("--budgets", type=float, nargs="+", default=list(BUDGETS), help="minutes for each search")
    parser.add_argument("--searches", type=int, default=200, help="searches of each script, machine and budget")
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run all cells; the page is written after each, so that a cut loses nothing."""
    options = parse(arguments)
    until = until_of(options)
    cells: list[Searches] = []
    for name in options.scripts:
        for machine in options.machines:
            for minutes in options.budgets:
                words = (name, machine, minutes, options.searches, options.seed)
                try:
                    run = partial(searches_of, *words, until)
                    cells.append(piece(options.pieces, "-".join(map(str, words)), Searches, run))
                except TimeIsUp:
                    return UNFINISHED
                _write(options.out, cells)
    return 0


def _write(out: Path, cells: Sequence[Searches]) -> None:
    write(
        out,
        title="Regret of simulated searches",
        command=command_line("bench.regret.simulated"),
        text=markdown(cells),
        data={"cells": msgspec.to_builtins(tuple(cells))},
    )


if __name__ == "__main__":
    raise SystemExit(main())
