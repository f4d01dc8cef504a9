"""``python -m bench.crossover --out docs/benchmarks/crossover``: does a lever gain within one launch what it gains in
launches of its own?

For every lever that a process can switch, and every example: the ratio from launches that switch, and the ratio from
launches that do not, each with its interval over launches. Where they disagree, a switch measures something else than a
launch, and a screening may choose wrongly there.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.regret.__main__ import EXAMPLES, SIZES
from bench.report import command_line, table, write
from hotlap import plan as plans_of
from hotlap.api import local_executor
from hotlap.errors import HotlapError
from hotlap.experiment.comparing import compare_replicates
from hotlap.experiment.draft import StudyDraft, say_nothing
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.replicates import Design, anything, replicate
from hotlap.experiment.stages import begin, blank_study
from hotlap.experiment.trials import Failure, Trials
from hotlap.levers.api import all_levers
from hotlap.measure.speed import HEADLINE_CONFIDENCE
from hotlap.records import Estimate, Plan, Replicate, Setting, Situation, SpeedComparison, Workload

ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Row:
    """One setting on one example; ``apart`` are the standard errors between the two ratios."""

    example: str
    setting: str
    within: Estimate | None = None
    over: Estimate | None = None
    apart: float | None = None
    trouble: str = ""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.crossover", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--examples", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--replicates", type=int, default=3, help="launches of each kind, at least 2 (default: 3)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure example after example; the report is written after each, so that a cut loses nothing."""
    options = parse(arguments)
    rows: list[Row] = []
    for name in options.examples:
        with tempfile.TemporaryDirectory(prefix="hotlap-crossover-") as folder:
            try:
                rows += measure(name, options.replicates, Path(folder))
            except HotlapError as error:
                rows.append(Row(name, "", trouble=str(error)))
        write(
            options.out,
            title="Levers within one launch and over launches",
            command=command_line("bench.crossover"),
            text=text_of(rows, options.replicates),
            data=[asdict(it) | _estimates(it) for it in rows],
        )
    return 0


def measure(name: str, replicates: int, folder: Path) -> list[Row]:
    """All settings of one example. Raises :class:`HotlapError` where it cannot be measured."""
    script = EXAMPLES / f"{name}.py"
    workload = Workload(
        kind="script", target=str(script), arguments=SIZES[name], directory=str(EXAMPLES), python=sys.executable
    )
    trials = Trials(workload, Options(), JournaledExecutor(local_executor(folder)))
    draft = StudyDraft(blank_study(workload, trials.options, None), trials, None, say_nothing)
    settings = _settings(trials, draft)
    plans = [plans_of.with_setting(plans_of.EMPTY, it) for it in settings]
    print(f"{name}: {', '.join(map(plans_of.describe, settings))}", file=sys.stderr, flush=True)
    together = _in_one_launch(trials, plans, replicates)
    return [
        _row(name, setting, together, 2 + index, _in_launches(trials, draft, plan, replicates))
        for index, (setting, plan) in enumerate(zip(settings, plans, strict=True))
    ]


def _settings(trials: Trials, draft: StudyDraft) -> list[Setting]:
    machine, observation = begin(trials, draft)
    situation = Situation(
        facts=observation.facts,
        machine=machine,
        account=observation.account,
        device_peak_bytes=observation.run.device_peak_bytes,
        host_peak_bytes=observation.run.host_peak_bytes,
    )
    levers = [it for it in all_levers().values() if it.switch is not None and it.obstacle(situation) is None]
    return [lever.candidates(situation)[0] for lever in levers if lever.candidates(situation)]


def _in_one_launch(trials: Trials, plans: Sequence[Plan], replicates: int) -> list[Replicate] | Failure:
    arms, taken = [plans_of.EMPTY, plans_of.EMPTY, *plans], list[Replicate]()
    while len(taken) < replicates:
        turns = trials.take_replicate(arms, rounds=ROUNDS, purpose="crossover", one_launch=True)
        if isinstance(turns, Failure):
            return turns
        taken.append(turns)
    return taken


def _in_launches(trials: Trials, draft: StudyDraft, plan: Plan, replicates: int) -> Sequence[Replicate] | Failure:
    design = Design(
        arms=(plans_of.EMPTY, plans_of.EMPTY, plan),
        purpose=f"launches {plans_of.key(plan)}",
        analyses=(replicates,),
        rounds=ROUNDS,
        accept=anything,
    )
    found = replicate(trials, draft, design)
    return found.failure if found.failure is not None else found.replicates


def _row(
    name: str,
    setting: Setting,
    together: Sequence[Replicate] | Failure,
    arm: int,
    launches: Sequence[Replicate] | Failure,
) -> Row:
    what = plans_of.describe(setting)
    if isinstance(together, Failure) or isinstance(launches, Failure):
        failed = together if isinstance(together, Failure) else launches
        assert isinstance(failed, Failure)
        return Row(name, what, trouble=failed.reason)
    within, over = (_compared(replicates, its) for replicates, its in ((together, arm), (launches, 2)))
    errors = [_standard_error(it) for it in (within, over)]
    apart = abs(math.log(within.speedup.value / over.speedup.value)) / max(1e-9, math.hypot(*errors))
    return Row(name, what, within.speedup, over.speedup, apart)


def _compared(replicates: Sequence[Replicate], arm: int) -> SpeedComparison:
    return compare_replicates(replicates, delta=0.02, confidence=HEADLINE_CONFIDENCE, arms=(0, 1, arm))


def _standard_error(found: SpeedComparison) -> float:
    from hotlap.measure import student

    half = math.log(found.speedup.high / found.speedup.low) / 2
    return half / student.quantile((1 + found.confidence) / 2, found.replicates - 1)


def _estimates(row: Row) -> dict[str, object]:
    return {
        name: None if it is None else {"value": it.value, "low": it.low, "high": it.high}
        for name, it in (("within", row.within), ("over", row.over))
    }


def text_of(rows: Sequence[Row], replicates: int) -> str:
    """The table, and how often the two disagree."""
    cells = [
        (it.example, it.setting, _ratio(it.within), _ratio(it.over), "" if it.apart is None else f"{it.apart:.1f}")
        if not it.trouble
        else (it.example, it.setting, it.trouble, "", "")
        for it in rows
    ]
    both = [it for it in rows if it.within is not None and it.over is not None]
    meet = sum(it.within.low <= it.over.high and it.over.low <= it.within.high for it in both)  # type: ignore[union-attr]
    return "\n".join(
        [
            f"{replicates} launches of each kind, {ROUNDS} rounds each, 95 % intervals over launches. Above 1 "
            "is faster than the unmodified script. The last column is their distance in standard errors.",
            "",
            table(("example", "setting", "within one launch", "over launches", "apart"), cells),
            "",
            f"The two intervals overlap for {meet} of {len(both)} settings.",
        ]
    )


def _ratio(found: Estimate | None) -> str:
    return "" if found is None else f"{found.value:.3f}x ({found.low:.3f} to {found.high:.3f})"


if __name__ == "__main__":
    raise SystemExit(main())
