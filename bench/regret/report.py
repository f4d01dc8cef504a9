"""The result as a Markdown text and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.regret.contest import Result, Terms
from bench.regret.grid import Choices, Grid
from bench.report import table
from hotlap.plan import describe
from hotlap.records import Estimate, Plan, Study

WANTED = 0.95
HEATS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Row:
    """One example: the search, the plan that it found, and the grid."""

    name: str
    arguments: tuple[str, ...]
    study: Study
    choices: Choices
    grid: Grid
    result: Result | None
    trouble: str = ""
    seconds: float = 0.0


def words(plan: Plan) -> str:
    """A plan in a line."""
    return ", ".join(describe(it) for it in plan.settings) or "nothing"


def interval(estimate: Estimate) -> str:
    """A ratio with its 95 % interval."""
    return f"{estimate.value:.3f} ({estimate.low:.3f}-{estimate.high:.3f})"


def verdict(result: Result) -> str:
    """The conclusion of the final about the promise of 95 %."""
    ratio = result.ratio
    if not ratio.baseline_agrees:
        return "no claim: the best plan differed from its repeat"
    if ratio.speedup.low >= WANTED:
        return "kept"
    return "missed" if ratio.speedup.high < WANTED else "undecided"


def markdown(rows: Sequence[Row], terms: Terms) -> str:
    """The report below its head."""
    lines = [
        "The plan that `hotlap tune` found, against the best other plan of a grid over the same levers. Every",
        "replicate runs its arms in turns, block by block; the ratio is of speeds (1.000: nothing was left on the",
        f"table), with its 95 % interval over {terms.final_replicates} fresh replicates, before which the best plan",
        f"had been chosen. The promise is a ratio of at least {WANTED}.",
        "",
        table(
            ["example", "found plan", "its speedup", "best other plan", "its speedup", "found / best", "promise"],
            [_cells(it) for it in rows],
        ),
    ]
    for row in rows:
        lines += ["", f"## {row.name}", "", *_details(row)]
    return "\n".join(lines)


def data(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [_datum(it) for it in rows]


def _cells(row: Row) -> list[str]:
    result = row.result
    if result is None:
        return [row.name, words(row.study.plan), "", "", "", "", row.trouble]
    return [
        row.name,
        words(row.study.plan),
        interval(result.found_speedup.speedup),
        words(result.best),
        interval(result.best_speedup.speedup),
        interval(result.ratio.speedup),
        verdict(result),
    ]


def _details(row: Row) -> list[str]:
    budget = f", budget {row.study.budget_seconds:.0f} s" if row.study.budget_seconds else ""
    lines = [
        f"- `{' '.join((row.name, *row.arguments))}`",
        f"- the search: {row.study.status}, {row.study.spent_seconds:.0f} s{budget}",
        f"- levers in the grid: {'; '.join(_lever(name, row.choices) for name in row.choices) or 'none'}",
        f"- {row.grid.statement}",
        f"- the grid: {row.seconds:.0f} s",
    ]
    if row.result is None:
        return lines
    lines += [f"- could not be run: {words(it)}" for it in row.result.failed]
    lines += [
        "",
        "Best in the heats (one replicate each, relative to the found plan):",
        "",
        table(["plan", "speed"], [[words(plan), f"{speed:.3f}"] for plan, speed in row.result.heats[:HEATS_SHOWN]]),
    ]
    return lines


def _lever(name: str, choices: Choices) -> str:
    return ", ".join(describe(it) for it in choices[name])


def _datum(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        "example": row.name,
        "arguments": row.arguments,
        "status": row.study.status,
        "budget_seconds": row.study.budget_seconds,
        "spent_seconds": row.study.spent_seconds,
        "grid_seconds": row.seconds,
        "grid": row.grid.statement,
        "grid_size": row.grid.size,
        "found": msgspec.to_builtins(row.study.plan),
        "trouble": row.trouble,
    }
    if row.result is None:
        return found
    result = row.result
    return found | {
        "best": msgspec.to_builtins(result.best),
        "found_over_best": msgspec.to_builtins(result.ratio),
        "found_speedup": msgspec.to_builtins(result.found_speedup),
        "best_speedup": msgspec.to_builtins(result.best_speedup),
        "verdict": verdict(result),
        "heats": [{"plan": msgspec.to_builtins(plan), "relative_speed": speed} for plan, speed in result.heats],
        "failed": [msgspec.to_builtins(it) for it in result.failed],
    }
